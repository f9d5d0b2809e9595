"""Lint rules on engine launch settings (PFX6xx)."""
