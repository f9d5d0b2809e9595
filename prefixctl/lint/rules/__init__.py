"""One lint rule per file; the file's name carries the id."""
