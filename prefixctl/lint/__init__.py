"""Lint: find what ends the shared prefix of a prompt, by reading alone; nothing is rendered."""
