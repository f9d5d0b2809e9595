"""What changed between two versions, and how much of the cache it makes cold."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from prefixctl.core.keys import TargetMaterial
from prefixctl.core.prompt import canonical_json, digest_of
from prefixctl.core.versions import Content, SectionRecord, TargetRecord

BLOCK_DIGEST_BYTES = 4
"""Kept of each link: the first differing block is missed once in 2**32 changes."""

TEXT_MATERIAL = frozenset({"tokenizer", "chat_template", "template_kwargs"})
"""Material that reaches KV values only through the token ids, which are compared themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChange:
    """What a change of version means on one target.

    Attributes:
        target: Its name.
        causes: What changed of the target itself, in words; empty if only the text did.
        block_size: Tokens in a block.
        kept_blocks: Full blocks from the front that stay valid.
        cold_tokens: Tokens in full blocks of the old prefix that no request will hit any more.
        new_tokens: Tokens in full blocks of the new prefix that have to be computed.
    """

    target: str
    causes: tuple[str, ...]
    block_size: int
    kept_blocks: int
    cold_tokens: int
    new_tokens: int

    @property
    def cold_blocks(self) -> int:
        """Full blocks of the old prefix that become cold."""
        return self.cold_tokens // self.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What differs between two versions.

    Attributes:
        content: Parts of the text that changed, in words; empty if none did.
        targets: Targets on which the key or the governance changed.
    """

    content: tuple[str, ...]
    targets: tuple[TargetChange, ...]

    def __bool__(self) -> bool:
        return bool(self.content or self.targets)


def block_chain(token_ids: Sequence[int], block_size: int) -> bytes:
    """A digest for each full block that covers it and all blocks before it.

    Not the engine's block hashes: short, so that a lock file can hold them.

    Returns:
        `BLOCK_DIGEST_BYTES` for each full block.
    """
    link, chain = b"", bytearray()
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        block = ",".join(map(str, token_ids[start : start + block_size]))
        link = hashlib.sha256(link + block.encode()).digest()
        chain += link[:BLOCK_DIGEST_BYTES]
    return bytes(chain)


def material_record(material: TargetMaterial) -> dict[str, str]:
    """A target's key material as a version records it; what is not set is left out.

    The hash seed is recorded as a digest: the lock need not teach it to its readers.
    """
    kwargs = dict(material.template_kwargs)
    seed = material.hash_seed
    record = {
        "model": material.model,
        "revision": material.revision,
        "weights": material.weights_fingerprint,
        "tokenizer": material.tokenizer_digest,
        "chat_template": material.chat_template_digest,
        "template_kwargs": digest_of(canonical_json(kwargs)) if kwargs else None,
        "adapter": material.adapter_digest,
        "dtype": material.dtype,
        "kv_dtype": material.kv_dtype,
        "hash_algorithm": material.hash_algorithm,
        "hash_seed": None if seed is None else digest_of(seed.encode()),
        "engine_scheme": material.engine_scheme,
    }
    return {name: value for name, value in record.items() if value is not None}


def compare(
    old_content: Content,
    old_targets: Mapping[str, TargetRecord],
    new_content: Content,
    new_targets: Mapping[str, TargetRecord],
) -> Change:
    """What differs, content first. A target that only the old side names is no change."""
    targets = [
        compare_target(name, old_targets.get(name), record) for name, record in new_targets.items()
    ]
    return Change(
        content=changed_parts(old_content, new_content),
        targets=tuple(t for t in targets if t is not None),
    )


def compare_target(name: str, old: TargetRecord | None, new: TargetRecord) -> TargetChange | None:
    """What differs on one target, or None if the key and the governance are the same."""
    size = new.block_size
    if old is None:
        return TargetChange(
            target=name,
            causes=("new target",),
            block_size=size,
            kept_blocks=0,
            cold_tokens=0,
            new_tokens=new.full_blocks * size,
        )
    if (old.key, old.governed) == (new.key, new.governed):
        return None
    causes, kept = _causes(old, new), 0
    if _same_values(old, new):
        kept = _common_links(old.blocks, new.blocks)
    return TargetChange(
        target=name,
        causes=causes,
        block_size=old.block_size,
        kept_blocks=kept,
        cold_tokens=(old.full_blocks - kept) * old.block_size,
        new_tokens=(new.full_blocks - kept) * size,
    )


def changed_parts(old: Content, new: Content) -> tuple[str, ...]:
    """The parts of the text that changed, in words."""
    if old.digest == new.digest:
        return ()
    parts = [
        *_sections(old.sections, new.sections),
        *_named("included file", old.includes, new.includes),
        *_named("parameter", old.parameters, new.parameters),
    ]
    return tuple(parts) or ("something that this version of prefixctl records",)


def _causes(old: TargetRecord, new: TargetRecord) -> tuple[str, ...]:
    causes = [
        f"{field} {_was(old.material.get(field))} -> {_was(new.material.get(field))}"
        for field in dict.fromkeys([*old.material, *new.material])
        if old.material.get(field) != new.material.get(field)
    ]
    if old.block_size != new.block_size:
        causes.append(f"block_size {old.block_size} -> {new.block_size}")
    if old.governed != new.governed:
        causes.append("now governed" if new.governed else "no longer governed")
    return tuple(causes)


def _was(value: str | None) -> str:
    if value is None:
        return "none"
    return value[:15] if value.startswith("sha256:") else value


def _same_values(old: TargetRecord, new: TargetRecord) -> bool:
    """Whether equal tokens mean equal KV values and equal block hashes on both sides."""
    fields = (set(old.material) | set(new.material)) - TEXT_MATERIAL
    same = all(old.material.get(f) == new.material.get(f) for f in fields)
    return same and old.block_size == new.block_size


def _common_links(old: bytes, new: bytes) -> int:
    step = BLOCK_DIGEST_BYTES
    limit = min(len(old), len(new)) // step
    for i in range(limit):
        if old[i * step : (i + 1) * step] != new[i * step : (i + 1) * step]:
            return i
    return limit


def _sections(old: Sequence[SectionRecord], new: Sequence[SectionRecord]) -> list[str]:
    before = [(s.kind, s.role, s.sha256) for s in old]
    after = [(s.kind, s.role, s.sha256) for s in new]
    if before != after and Counter(before) == Counter(after):
        return ["the order of the sections"]
    parts: list[str] = []
    for what, i, i_end, j, j_end in SequenceMatcher(
        a=before, b=after, autojunk=False
    ).get_opcodes():
        if what == "equal":
            continue
        pairs = min(i_end - i, j_end - j)
        parts += [f"section {j + n + 1}, {_title(new[j + n])}" for n in range(pairs)]
        parts += [f"section {n + 1}, {_title(old[n])}, removed" for n in range(i + pairs, i_end)]
        parts += [f"section {n + 1}, {_title(new[n])}, added" for n in range(j + pairs, j_end)]
    return parts


def _title(section: SectionRecord) -> str:
    return f"{section.kind.value} ({section.file})"


def _named(word: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    parts = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            end = ", added" if name not in old else ", removed" if name not in new else ""
            parts.append(f"{word} {name}{end}")
    return parts
