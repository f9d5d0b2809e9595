"""The report as other programs read it: one module for each format."""
