"""Files that several commands read."""
