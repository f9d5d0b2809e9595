"""Mutations of valid requests: a few fields changed, or the bytes."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

VALID = [
    {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True},
    {"model": "m", "prefix_key": "support", "messages": [{"role": "user", "content": "hi"}]},
    {"model": "m", "prefix_key": "support@1", "prefix_parameters": {"question": "Why?"}},
    {"model": "m", "prompt": "hi", "cache_salt": "x", "vllm_xargs": {"prefixctl": "forged"}},
    {"model": "m", "input": [{"role": "user", "content": "hi"}], "instructions": "be"},
    {"model": "m", "token_ids": [1, 2], "sampling_params": {"extra_args": {"prefixctl": "x"}}},
    {"model": "m", "max_tokens": 1, "system": "s", "tools": [{"name": "t"}], "messages": []},
]
FIELDS = [
    "cache_salt", "vllm_xargs", "prefix_key", "prefix_parameters", "messages", "input", "prompt",
    "tools", "stream", "stream_options", "sampling_params", "kv_transfer_params", "session_id",
    "request_id", "system", "instructions", "previous_response_id", "x" * 50,
]  # fmt: skip
VALUES = [
    None, True, 0, -1.5, 2**70, "", "x", "support", "support@1", "support@99999999999", "\ud7ff",
    [], [[]], [None], [1], {}, {"prefixctl": "x"}, {"role": "user", "content": []},
    [{"role": "user", "content": [{"type": "image_url", "uuid": "u"}]}], {"include_usage": True},
    {"question": "{{ x }}"}, {"question": None}, {"extra_args": []}, [{"function": []}],
    [{"function": {"name": []}, "name": {}}],
]  # fmt: skip


def mutate(choose: random.Random) -> bytes:
    """A valid body with a few fields changed, or its bytes."""
    body = copy.deepcopy(choose.choice(VALID))
    for _ in range(choose.randrange(4)):
        holder: Any = body
        while isinstance(holder, dict) and holder and choose.random() < 0.3:
            deeper = choose.choice(list(holder.values()))
            if not isinstance(deeper, dict | list):
                break
            holder = deeper
        if isinstance(holder, dict):
            holder[choose.choice(FIELDS)] = copy.deepcopy(choose.choice(VALUES))
        elif isinstance(holder, list):
            holder.append(copy.deepcopy(choose.choice(VALUES)))
    data = bytearray(json.dumps(body, ensure_ascii=choose.random() < 0.5).encode())
    for _ in range(choose.choice([0, 0, 0, 1, 3])):
        at = choose.randrange(len(data) + 1)
        change = choose.randrange(3)
        if change == 0:
            data[at:at] = bytes([choose.randrange(256)])
        elif change == 1:
            del data[at : at + choose.randrange(4)]
        else:
            data[at:at] = data[choose.randrange(len(data)) :][: choose.randrange(20)]
    return bytes(data)
