"""What traffic is made of, and what a cache would make of it."""
