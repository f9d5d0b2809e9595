"""The library: one typed function per command; the command line is a face on it."""
