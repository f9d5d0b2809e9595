"""Where published versions live."""
