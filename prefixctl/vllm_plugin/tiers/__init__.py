"""Host memory and NVMe behind vLLM's offloading connector, on GPUs and on CPU-only hosts."""
