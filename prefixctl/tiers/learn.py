"""Keeps the index of one process in step with the folder, which others change too."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from prefixctl.tiers.block import footprint_bytes
from prefixctl.tiers.counters import EvictionReason, TierCounters
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.files import STUCK, File, look
from prefixctl.tiers.folder import BLOCK_SUFFIX, block_name
from prefixctl.tiers.index import Found, Index, by_depth, by_use
from prefixctl.tiers.material import Material
from prefixctl.tiers.read import find_headers, read_headers

BATCH = 250
"""Blocks that are entered before others get the index."""
PAUSE_SECONDS = 0.0002
"""Long enough for who waits to get the lock: it goes to whoever asks first."""
SPARE_SHARE = 8
"""The index has room for an eighth more when it has to grow."""
T = TypeVar("T")


class Learner:
    """Reads the folder, and enters what it finds a few at a time, so that lookups go on."""

    def __init__(
        self,
        directory: TierDirectory,
        material: Material,
        *,
        index: Index,
        lock: Lock,
        counters: TierCounters,
        file_bytes: int,
    ) -> None:
        """Nothing is read yet.

        Args:
            directory: The folder.
            material: What our blocks are of.
            index: Of our own blocks.
            lock: Guards the index.
            counters: Where damaged files are counted.
            file_bytes: The size of our files.
        """
        self._directory = directory
        self._material = material
        self._index = index
        self._lock = lock
        self._counters = counters
        self._file_bytes = file_bytes

    def refresh(self, slots: int) -> None:
        """Set the total right, and learn what others have written and removed.

        Files that are no blocks are removed.

        Args:
            slots: Blocks that may be there at most.
        """
        with self._lock:
            known = set(self._index.entries)
        there: set[bytes] = set()
        unknown: list[File] = []
        footprint = footprint_bytes(self._file_bytes)

        def see(material: str, file: File) -> None:
            if material == self._material.folder:
                key = _key_of(file[0])
                if key in known and file[1] == footprint:
                    there.add(key)
                else:
                    unknown.append(file)

        self._directory.recount(see)
        found, damaged = read_headers(unknown, self._material.digest, self._file_bytes)
        for path in damaged:
            with self._directory.locked(), suppress(*STUCK):
                if self._directory.remove(Path(path)):
                    self._counters.evicted(EvictionReason.DAMAGED)
        # What was written while the folder was read is not among them, and yet there.
        self.forget([key for key in known - there if self._is_gone(key)])
        self._enter(found, slots)

    def find(self, keys: Iterable[bytes]) -> None:
        """Learn of blocks that others have written."""
        paths = [self._path(key) for key in keys]
        found = find_headers(paths, self._material.digest, self._file_bytes)
        with self._lock:
            self._index.add_all(found)

    def forget(self, keys: Sequence[bytes]) -> int:
        """The deepest first, so that nothing is without what it hangs on; how many there were."""
        with self._lock:
            entries = [e for key in keys if (e := self._index.entries.get(key)) is not None]
        entries.sort(key=lambda e: e.depth, reverse=True)
        forgotten = 0
        for batch in _batches(entries):
            with self._lock:
                forgotten += sum(self._index.remove(entry.key) is not None for entry in batch)
        return forgotten

    def _enter(self, found: Sequence[Found], slots: int) -> None:
        with self._lock:
            wanted = len(self._index) + len(found)
            self._index.enlarge(slots if wanted <= slots else wanted + wanted // SPARE_SHARE)
        for batch in _batches(by_depth(found)):
            with self._lock:
                self._index.enter(batch)
        for batch in _batches(by_use(found)):
            with self._lock:
                self._index.release(batch)

    def _is_gone(self, key: bytes) -> bool:
        try:
            look(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def _path(self, key: bytes) -> Path:
        return self._directory.path / self._material.folder / block_name(key)


def _key_of(path: str) -> bytes | None:
    """The key that a file is named after, None if it is none."""
    try:
        return bytes.fromhex(path[path.rfind("/") + 1 :].removesuffix(BLOCK_SUFFIX))
    except ValueError:
        return None


def _batches(things: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), BATCH):
        if start:
            time.sleep(PAUSE_SECONDS)
        yield things[start : start + BATCH]
