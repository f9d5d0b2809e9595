"""One reader per format: a file's text -> documents of blocks with exact places."""
