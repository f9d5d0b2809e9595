"""What an operator does to a tier's folder; servers that use it may go on."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path

from prefixctl.tiers.block import MOST_LABEL_BYTES
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.files import File, told
from prefixctl.tiers.folder import TierFolder
from prefixctl.tiers.read import read_headers


def purge_owners(path: Path, tags: Collection[bytes]) -> int:
    """Remove every block of these owners, of all models; returns how many there were.

    Files that are no blocks are removed as well, since nobody can tell whose they are, and what
    killed processes have not finished. A server that knows a block finds its file gone: a miss.
    What cannot be removed, or not be looked at, stays; see `count_owners`.

    Raises:
        InputError: If the folder cannot be used, or somebody keeps it locked.
    """
    files: dict[str, list[File]] = {}
    removed = 0
    with told(path), closing(TierDirectory(path)) as directory:
        directory.recount(lambda name, file: files.setdefault(name, []).append(file))
        for name, listed in files.items():
            found, broken = read_headers(listed, None, None)
            for header, _ in found:
                if header.owner in tags:
                    with directory.locked(), suppress(OSError):
                        removed += directory.remove(directory.block(name, header.key))
            for file in broken:
                with directory.locked(), suppress(OSError):
                    directory.remove(Path(file))
    return removed


def count_owners(path: Path, tags: Collection[bytes]) -> int:
    """How many blocks of these owners are there, and files of which it cannot be told.

    Nothing is opened for writing.

    Raises:
        InputError: If a folder cannot be listed.
    """
    folder = TierFolder(path)
    unseen: list[str] = []
    with told(path):
        files = (file for name in folder.block_folders() for file in folder.files(name))
        found, broken = read_headers(files, None, None, unseen=unseen.append)
    return sum(header.owner in tags for header, _ in found) + len(broken) + len(unseen)


def retire_version(path: Path, label: str, *, undo: bool = False) -> None:
    """Let the blocks of a version go first from now on, or no longer.

    Raises:
        ValueError: If it is no label.
        InputError: If that cannot be written, or somebody keeps the folder locked.
    """
    if not label or "\n" in label or len(label.encode()) > MOST_LABEL_BYTES:
        raise ValueError(f"a version has 1 to {MOST_LABEL_BYTES} bytes on one line")
    with told(path), closing(TierDirectory(path)) as directory:
        directory.retire(label, undo=undo)
