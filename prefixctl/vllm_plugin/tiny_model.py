"""``python -m prefixctl.vllm_plugin.tiny_model FOLDER``: a random-weight Llama, made on the spot.

It says nothing sensible, but its KV cache, its attention and its speed are real. The folder must
hold a tokenizer already; the weights follow from the seed alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "160m": {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 12,
             "num_attention_heads": 16, "num_key_value_heads": 8},
    "5m": {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
           "num_attention_heads": 4, "num_key_value_heads": 2},
}  # fmt: skip
MAX_TOKENS = 8192


def make_model(folder: Path, *, size: str, dtype: str, seed: int) -> int:
    """Write config.json and the weights.

    Args:
        folder: Holds tokenizer.json.
        size: A key of `SIZES`, named after its parameter count.
        dtype: A torch type's name, for example ``bfloat16``.
        seed: Of the weights.

    Returns:
        The number of parameters.
    """
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=(len(vocab) + 63) // 64 * 64,
        max_position_embeddings=MAX_TOKENS,
        # Wider than the usual 0.02, so that attention, and with it the prefix, decides the output.
        initializer_range=0.08,
        tie_word_embeddings=False,
        eos_token_id=None,
        bos_token_id=None,
        **SIZES[size],
    )
    model = LlamaForCausalLM(config).to(getattr(torch, dtype))
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


def main() -> None:
    """Parse arguments and make the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", choices=sorted(SIZES), default="160m")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not (options.folder / "tokenizer.json").is_file():
        parser.error(f"{options.folder} holds no tokenizer.json: copy examples/tiny-target first")
    make_model(options.folder, size=options.size, dtype=options.dtype, seed=options.seed)


if __name__ == "__main__":
    main()
