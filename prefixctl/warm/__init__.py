"""Make prefixes resident before users arrive."""
