"""What names the KV bytes of this server: model, weights, types, layout, engine."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from vllm.platforms import current_platform

from prefixctl.core.prompt import canonical_json
from prefixctl.engine.release import engine_release
from prefixctl.engine.weights import fingerprint, weights_folder


def engine_facts(vllm_config: Any, *, weights: str | None, adapter: str | None) -> dict[str, Any]:
    """What a block's bytes depend on, as far as the whole server's configuration says.

    Args:
        vllm_config: vLLM's.
        weights: What names the weights, if the operator says so.
        adapter: What names the adapter's weights, if the operator says so.

    Raises:
        InputError: If nothing names the weights: another model's blocks could be served.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    config = hashlib.sha256(canonical_json(_plain(model.hf_config.to_dict()))).hexdigest()
    speculative = vllm_config.speculative_config
    return {
        "engine": engine_release(),
        "platform": current_platform.device_type,
        "weights": weights or fingerprint(weights_folder(model.model, model.revision)),
        "adapter": adapter,
        "config": config,
        "dtype": str(model.dtype),
        "kv_dtype": str(cache.cache_dtype),
        "quantization": str(model.quantization),
        "speculative": None if speculative is None else str(speculative.model),
        "hash": str(cache.prefix_caching_hash_algo),
        "hash_seed": os.environ.get("PYTHONHASHSEED"),
    }


def layout_facts(config: Any) -> dict[str, Any]:
    """What a block's bytes depend on, as the offloading configuration says."""
    parallel = config.parallel
    return {
        "groups": [
            {"tokens": group.tokens_per_block, "layers": list(group.layer_names)}
            for group in config.groups
        ],
        "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "worker_bytes_per_block": config.worker_kv_bytes_per_block,
        "ranks": {
            "tensor": parallel.tp_size,
            "pipeline": parallel.pp_size,
            "prefill_context": parallel.pcp_size,
            "decode_context": parallel.dcp_size,
        },
        "replicated": config.replicated_layout,
        "canonical": config.canonical_layout,
        "layout": str(config.kv_cache_layout),
    }


def _plain(value: Any) -> Any:
    """Values that JSON knows; anything else by its text."""
    if isinstance(value, dict):
        return {
            str(k): _plain(v)
            for k, v in value.items()
            if k not in {"_name_or_path", "architectures"}
        }
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
