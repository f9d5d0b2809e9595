"""Adopt a repository: find its prompts and propose how prefixctl governs them."""
