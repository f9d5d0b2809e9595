"""What an operator does to a tier's folder; servers that use it may go on."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from prefixctl.tiers.block import MOST_LABEL_BYTES
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.read import read_headers


def purge_owners(path: Path, tags: Collection[bytes]) -> int:
    """Remove every block of these owners, of all models; returns how many there were.

    A server that knows a block finds its file gone: a miss.
    """
    directory = TierDirectory(path)
    try:
        removed = 0
        for name in directory.materials():
            found, _ = read_headers(directory.files(name), None, None)
            doomed = [h.key for h, _ in found if h.owner in tags]
            with directory.locked():
                removed += sum(bool(directory.remove(directory.block(name, key))) for key in doomed)
        return removed
    finally:
        directory.close()


def count_owners(path: Path, tags: Collection[bytes]) -> int:
    """How many blocks of these owners are there."""
    directory = TierDirectory(path)
    try:
        found, _ = read_headers(
            (f for name in directory.materials() for f in directory.files(name)), None, None
        )
        return sum(header.owner in tags for header, _ in found)
    finally:
        directory.close()


def retire_version(path: Path, label: str, *, undo: bool = False) -> None:
    """Let the blocks of a version go first from now on, or no longer.

    Raises:
        ValueError: If it is no label.
    """
    if not label or "\n" in label or len(label.encode()) > MOST_LABEL_BYTES:
        raise ValueError(f"a version has 1 to {MOST_LABEL_BYTES} bytes on one line")
    directory = TierDirectory(path)
    try:
        directory.retire(label, undo=undo)
    finally:
        directory.close()
