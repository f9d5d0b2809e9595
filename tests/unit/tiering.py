"""Blocks whose bytes follow from their keys, and stores that hold them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prefixctl.core.policy.tier import Rules
from prefixctl.tiers.block import HEADER_BYTES, footprint_bytes
from prefixctl.tiers.folder import block_name
from prefixctl.tiers.material import Material
from prefixctl.tiers.store import BlockStore
from prefixctl.tiers.write import Place

BLOCK_BYTES = 8000
ROOM = footprint_bytes(HEADER_BYTES + BLOCK_BYTES + 16)
OURS = Material({"model": "ours"})


class Clock:
    """A clock that a test moves: time passes with `now`, and somebody sets it with `jump`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self.jumped = 0.0

    def __call__(self) -> float:
        return self.now

    def jump(self, seconds: float) -> None:
        self.now += seconds
        self.jumped += seconds

    def elapsed(self) -> float:
        return self.now - self.jumped


def key_of(number: int, chain: int = 0) -> bytes:
    return hashlib.sha256(f"{chain} {number}".encode()).digest() + b"\0\0\0\0"


def body_of(key: bytes, size: int = BLOCK_BYTES) -> bytes:
    return hashlib.shake_256(key).digest(size)


def place(number: int, chain: int = 0, **changes: Any) -> Place:
    changes = {"parent": key_of(number - 1, chain) if number else b"", "depth": number} | changes
    return Place(key=key_of(number, chain), **changes)


def open_store(
    path: Path,
    *,
    blocks: int = 8,
    material: Material = OURS,
    rules: Rules | None = None,
    clock: Clock | None = None,
    block_bytes: int = BLOCK_BYTES,
    **more: Any,
) -> BlockStore:
    more |= {} if clock is None else {"clock": clock, "elapsed": clock.elapsed}
    return BlockStore(
        path,
        material=material,
        block_bytes=block_bytes,
        max_bytes=blocks * footprint_bytes(HEADER_BYTES + block_bytes + 16),
        rules=rules,
        **more,
    )


def put(store: BlockStore, number: int, chain: int = 0, **changes: Any) -> bool:
    where = place(number, chain, **changes)
    return store.put(where, body_of(where.key, store.block_bytes))


def load(store: BlockStore, number: int, chain: int = 0) -> str:
    """``hit`` if the very bytes came back, else the cause of the miss."""
    key = key_of(number, chain)
    buffer = bytearray(store.block_bytes)
    cause = store.load(key, memoryview(buffer))
    if cause is not None:
        return cause.value
    assert bytes(buffer) == body_of(key, store.block_bytes), "a wrong block was served"
    return "hit"


def file_of(store: BlockStore, number: int, chain: int = 0, material: Material = OURS) -> Path:
    return store.directory.path / material.folder / block_name(key_of(number, chain))


def used_at(store: BlockStore, number: int, chain: int, when: float, **more: Any) -> None:
    """A file was last used then, as another process would see it."""
    os.utime(file_of(store, number, chain, **more), (when, when))


def there(store: BlockStore, blocks: Iterable[tuple[int, int]], **more: Any) -> list[bool]:
    """Which files of blocks, each a number and its chain, are there."""
    return [file_of(store, number, chain, **more).exists() for number, chain in blocks]


def disk_bytes(path: Path) -> int:
    """What the blocks take, finished or not, by looking."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if name.endswith(".kv") or Path(folder).name == "temporary":
                try:
                    total += footprint_bytes((Path(folder) / name).stat().st_size)
                except FileNotFoundError:
                    continue
    return total
