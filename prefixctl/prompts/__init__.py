"""Prompt sources: load, render, tokenise, measure."""
