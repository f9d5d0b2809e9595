"""Lint rules, one per file, and the run over files."""
