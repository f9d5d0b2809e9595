"""Versions of governed prompts: bump, publish, roll back."""
