"""Which blocks leave when the folder is full."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from prefixctl.tiers.counters import EvictionReason, TierCounters
from prefixctl.tiers.directory import TierDirectory, block_name
from prefixctl.tiers.index import LOOK_AGAIN_SECONDS, Entry, Index

SECOND_CHANCES = 64
CLOCK_SLACK_SECONDS = 1.0


class Room:
    """Makes room, in an order that lets what nobody will ask for go first.

    Blocks of older models, what has expired of younger ones, blocks of retired versions, then
    whatever the policy says. A model is older if its folder was made earlier. A victim that another
    process has used since goes back into the order.
    """

    def __init__(
        self,
        directory: TierDirectory,
        material: str,
        *,
        index: Index,
        lock: Lock,
        counters: TierCounters,
        ttl_seconds: float | None,
        clock: Callable[[], float],
        refresh: Callable[[], None],
    ) -> None:
        """Nothing is looked at before space is short.

        Args:
            directory: The folder.
            material: The name of our own part of it.
            index: Of our own blocks.
            lock: Guards the index.
            counters: Where evictions are counted.
            ttl_seconds: When blocks of other models have expired.
            clock: The time in seconds since 1970.
            refresh: Reads our own part again.
        """
        self._directory = directory
        self._material = material
        self._index = index
        self._lock = lock
        self._counters = counters
        self._ttl = ttl_seconds
        self._clock = clock
        self._refresh = refresh
        self._others: list[tuple[str, float, EvictionReason]] = []
        self._next_look = 0.0
        self._next_refresh = 0.0
        self.wants_refresh = False

    def make(self, size: int, max_bytes: int) -> bool:
        """Evict until so many bytes fit; the caller holds the folder's lock.

        Returns:
            False if nothing is left that may go.
        """
        while self._directory.total_bytes + size > max_bytes:
            if not self._evict_other() and not self._evict_own():
                self.wants_refresh = True
                return False
        return True

    def refresh_if_wanted(self) -> None:
        """After nothing could be evicted: others may have filled the folder. Without locks."""
        if self.wants_refresh and time.monotonic() >= self._next_refresh:
            self._next_refresh = time.monotonic() + LOOK_AGAIN_SECONDS
            self.wants_refresh = False
            self._refresh()

    def _evict_other(self) -> bool:
        """Remove a block of another model, if one may go."""
        if not self._others and time.monotonic() >= self._next_look:
            self._others = self._find_others()[::-1]
            self._next_look = time.monotonic() + LOOK_AGAIN_SECONDS
        while self._others:
            path, _, reason = self._others.pop()
            if self._directory.remove(Path(path)):
                self._counters.evicted(reason)
                return True
        return False

    def _find_others(self) -> list[tuple[str, float, EvictionReason]]:
        found: list[tuple[str, float, EvictionReason]] = []
        older = True
        oldest = None if self._ttl is None else self._clock() - self._ttl
        for name in self._directory.materials():
            if name == self._material:
                older = False
                continue
            files = sorted((used, path) for path, _, used in self._directory.files(name))
            if older:
                found += [(path, used, EvictionReason.OLD_MODEL) for used, path in files]
            elif oldest is not None:
                found += [(p, used, EvictionReason.EXPIRED) for used, p in files if used < oldest]
        return found

    def _evict_own(self) -> bool:
        retired = self._directory.retired()
        chances = SECOND_CHANCES
        while True:
            with self._lock:
                entry = self._index.retired_victim(retired) if retired else None
                reason = EvictionReason.RETIRED
                if entry is None:
                    entry = self._index.victim()
                    reason = EvictionReason.SPACE
            if entry is None:
                return False
            path = self._directory.path / self._material / block_name(entry.key)
            if reason is EvictionReason.SPACE and chances and self._used_since(entry, path):
                chances -= 1
                continue
            if self._directory.remove(path):
                self._counters.evicted(reason)
                return True

    def _used_since(self, entry: Entry, path: Path) -> bool:
        """Whether another process used the block after us; then it is entered again."""
        try:
            used = path.stat().st_mtime
        except OSError:
            return False
        if used <= max(entry.used, entry.noted) + CLOCK_SLACK_SECONDS:
            return False
        with self._lock:
            self._index.enter_again(entry, used)
        return True
