"""vLLM seen from outside the server."""
