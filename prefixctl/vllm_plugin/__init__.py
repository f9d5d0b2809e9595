"""Everything that runs inside the engine; the only package that imports torch or vllm."""
