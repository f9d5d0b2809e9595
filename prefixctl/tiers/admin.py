"""What an operator does to a tier's folder; servers that use it may go on."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from prefixctl.tiers.block import MOST_LABEL_BYTES
from prefixctl.tiers.directory import TierDirectory, TierFolder
from prefixctl.tiers.files import File
from prefixctl.tiers.read import read_headers


def purge_owners(path: Path, tags: Collection[bytes]) -> int:
    """Remove every block of these owners, of all models; returns how many there were.

    Files that are no blocks are removed as well, since nobody can tell whose they are, and what
    killed processes have not finished. A server that knows a block finds its file gone: a miss.
    """
    directory = TierDirectory(path)
    files: dict[str, list[File]] = {}
    removed = 0
    try:
        directory.recount(lambda name, file: files.setdefault(name, []).append(file))
        for name, listed in files.items():
            found, broken = read_headers(listed, None, None)
            for header, _ in found:
                if header.owner in tags:
                    with directory.locked():
                        removed += bool(directory.remove(directory.block(name, header.key)))
            for file in broken:
                with directory.locked():
                    directory.remove(Path(file))
    finally:
        directory.close()
    return removed


def count_owners(path: Path, tags: Collection[bytes]) -> int:
    """How many blocks of these owners are there, and files of which it cannot be told.

    Nothing is opened for writing.
    """
    folder = TierFolder(path)
    files = (file for name in folder.block_folders() for file in folder.files(name))
    found, broken = read_headers(files, None, None)
    return sum(header.owner in tags for header, _ in found) + len(broken)


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
