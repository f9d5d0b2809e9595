"""The gateway's decisions: who asks, what a request may carry, which prefix it names, how much."""
