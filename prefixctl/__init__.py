"""prefixctl governs the prefix (KV) cache of vLLM."""

__version__ = "0.1.0"
