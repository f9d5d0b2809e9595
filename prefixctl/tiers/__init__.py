"""KV blocks on a local disk that survive a restart: bounded, checked on every load, pure Python."""
