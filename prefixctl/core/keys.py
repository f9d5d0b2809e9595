"""Key material, prefix keys, and the engine's chain of block hashes.

The prefix key is the registry's identity of a prompt's content on a target. It is not the
engine's block hash, which knows tokens only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from prefixctl.core.prompt import canonical_json
from prefixctl.ids import BlockHash, PrefixKey, Salt

ENGINE_SCHEME = "vllm-1"
"""Names the way an engine chains block hashes; a new way gets a new name."""

DEFAULT_ROOT_SEED = "vllm-none-hash"
"""vLLM's seed of the root hash when PYTHONHASHSEED is not set (0.32, kv_cache_utils)."""

HashFunction = Callable[[object], bytes]
"""Serialises one value and hashes it; see `prefixctl.engine.hashing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMaterial:
    """All that a deployment adds to the key material: what changes KV values but not the text.

    Attributes:
        model: The model's name.
        revision: Its revision, or None.
        weights_fingerprint: A digest that names the weights, or None if unknown.
        tokenizer_digest: Digest of the tokenizer's definition.
        chat_template_digest: Digest of the chat template's bytes, or None.
        template_kwargs: Keyword arguments given to the chat template.
        adapter_digest: Digest of the adapter (LoRA), or None.
        dtype: Data type of weights and activations.
        kv_dtype: Data type of the KV cache; ``auto`` follows ``dtype``.
        block_size: The cache unit in tokens.
        hash_algorithm: The engine's name of its block hash.
        hash_seed: The engine's hash seed, or None for its default.
        engine_scheme: See `ENGINE_SCHEME`.
    """

    model: str
    revision: str | None
    weights_fingerprint: str | None
    tokenizer_digest: str
    chat_template_digest: str | None
    template_kwargs: Mapping[str, object]
    adapter_digest: str | None
    dtype: str
    kv_dtype: str
    block_size: int
    hash_algorithm: str
    hash_seed: str | None
    engine_scheme: str = ENGINE_SCHEME


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMaterial:
    """A prompt's shared prefix on a target: the target, the section types, the token ids."""

    target: TargetMaterial
    section_kinds: tuple[str, ...]
    token_ids: tuple[int, ...]

    def prefix_key(self) -> PrefixKey:
        """``pk1:`` and the SHA-256 of the canonical JSON of all material.

        The name of the prompt is not material: a rename changes nothing. The section types
        are: the same text as another type is another prefix.
        """
        material = {
            "target": asdict(self.target),
            "section_kinds": list(self.section_kinds),
            "token_ids": list(self.token_ids),
        }
        return PrefixKey("pk1:" + hashlib.sha256(canonical_json(material)).hexdigest())


def block_hashes(
    token_ids: Sequence[int],
    *,
    block_size: int,
    hash_function: HashFunction,
    root_seed: str = DEFAULT_ROOT_SEED,
    adapter: tuple[str, str] | None = None,
    salts: Mapping[int, Salt] | None = None,
) -> list[BlockHash]:
    """The chain of hashes that vLLM gives to the full blocks of a request.

    hash(parent, (token ids), extra keys), where the root's parent is hash(seed). Read from
    vLLM 0.32 ``v1/core/kv_cache_utils.py`` and compared with a live server's KV events.

    Args:
        token_ids: The request's tokens; a tail shorter than a block has no hash.
        block_size: Tokens in a block.
        hash_function: The engine's, by name: `prefixctl.engine.hashing.hash_function`.
        root_seed: The engine's seed.
        adapter: Name and path of the LoRA adapter, an extra key of every block.
        salts: Block index to the salt that enters there; a whole-request salt is ``{0: salt}``.

    Returns:
        One hash for each full block.
    """
    parent = hash_function(root_seed)
    chain: list[BlockHash] = []
    for index in range(len(token_ids) // block_size):
        tokens = tuple(token_ids[index * block_size : (index + 1) * block_size])
        extra: list[tuple[str, ...]] = []
        if adapter is not None:
            extra.append(("lora", *adapter))
        if salts and index in salts:
            extra.append(("cache_salt", str(salts[index])))
        parent = hash_function((parent, tokens, tuple(extra) or None))
        chain.append(BlockHash(parent))
    return chain
