"""Which blocks leave when the folder is full."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from prefixctl.tiers.counters import EvictionReason, TierCounters
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.files import STUCK
from prefixctl.tiers.folder import block_name
from prefixctl.tiers.index import Entry, Index
from prefixctl.tiers.lookout import Lookout

SECOND_CHANCES = 64
CLOCK_SLACK_SECONDS = 1.0
AT_ONCE = 64
"""Blocks that are evicted before others get the folder's lock."""


class Room:
    """Makes room, in an order that lets what nobody will ask for go first.

    Blocks of older models, what has expired, blocks of retired versions, then whatever the policy
    says; see `Standing` for other models. A victim that another process has used since goes back
    into the order.
    """

    def __init__(
        self,
        directory: TierDirectory,
        material: str,
        lookout: Lookout,
        *,
        index: Index,
        lock: Lock,
        counters: TierCounters,
        footprint: int,
    ) -> None:
        """Nothing is evicted before space is short.

        Args:
            directory: The folder.
            material: The name of our own part of it.
            lookout: Sees what may go.
            index: Of our own blocks.
            lock: Guards the index.
            counters: Where evictions are counted.
            footprint: Disk space of one of our blocks.
        """
        self._directory = directory
        self._folder = directory.path / material
        self._lookout = lookout
        self._index = index
        self._lock = lock
        self._counters = counters
        self._footprint = footprint
        self._spare: Entry | None = None

    def make(self, size: int) -> bool | None:
        """Evict until so many bytes fit; the caller holds the folder's lock.

        Returns:
            False if nothing is left that may go, None if there is more to do than one should do
            while others wait.
        """
        for _ in range(AT_ONCE):
            if self._directory.total_bytes + size <= self._lookout.bound:
                self._lookout.eased()
                return True
            if not self._evict():
                return False
        return None

    def shrink(self) -> None:
        """Evict what is beyond the bound, if that was lowered."""
        while True:
            with self._directory.locked():
                if self.make(0) is not None:
                    return

    def _evict(self) -> bool:
        return (
            self._remove_other(self._lookout.others.older, EvictionReason.OLD_MODEL)
            or self._evict_expired()
            or self._evict_retired()
            or self._evict_by_use()
        )

    def _evict_expired(self) -> bool:
        others, theirs = self._lookout.others, self._lookout.others_expired_before()
        ours = self._lookout.expired_before()
        return self._remove_other(
            lambda: others.expired(theirs), EvictionReason.EXPIRED
        ) or self._remove_own(lambda: self._index.expired_victim(ours), EvictionReason.EXPIRED)

    def _evict_retired(self) -> bool:
        labels = self._directory.retired()
        if not labels:
            return False
        return self._remove_own(
            lambda: self._index.retired_victim(labels), EvictionReason.RETIRED, chances=0
        )

    def _evict_by_use(self) -> bool:
        """What the policy says, or a block that no server has and that was used before it.

        A choice of the policy that stays for this time goes next, if it is not used until then.
        """
        while True:
            own = self._spare_victim() or self._victim(self._index.victim, SECOND_CHANCES)
            left = self._lookout.others.left(float("inf") if own is None else own[0].used)
            if left is not None:
                self._spare = None if own is None else own[0]
                if self._remove(Path(left)):
                    self._counters.evicted(EvictionReason.OLD_MODEL)
                    return True
            elif own is None:
                return False
            elif self._remove(own[1], self._footprint):
                self._counters.evicted(EvictionReason.SPACE)
                return True

    def _spare_victim(self) -> tuple[Entry, Path] | None:
        entry, self._spare = self._spare, None
        if entry is None:
            return None
        path = self._folder / block_name(entry.key)
        with self._lock:
            known = entry.key in self._index.entries
        return None if known or self._used_since(entry, path) else (entry, path)

    def _remove_other(self, choose: Callable[[], str | None], reason: EvictionReason) -> bool:
        while (path := choose()) is not None:
            if self._remove(Path(path)):
                self._counters.evicted(reason)
                return True
        return False

    def _remove_own(
        self,
        choose: Callable[[], Entry | None],
        reason: EvictionReason,
        chances: int = SECOND_CHANCES,
    ) -> bool:
        while (victim := self._victim(choose, chances)) is not None:
            if self._remove(victim[1], self._footprint):
                self._counters.evicted(reason)
                return True
        return False

    def _remove(self, path: Path, most: int | None = None) -> bool:
        """Remove a file; False if it is not there or cannot be, and another one has to go."""
        with suppress(*STUCK):
            return self._directory.remove(path, most)
        return False

    def _victim(
        self, choose: Callable[[], Entry | None], chances: int
    ) -> tuple[Entry, Path] | None:
        """A choice and its file; so many that another process has used since may stay."""
        while True:
            with self._lock:
                entry = choose()
            if entry is None:
                return None
            path = self._folder / block_name(entry.key)
            if not chances or not self._used_since(entry, path):
                return entry, path
            chances -= 1

    def _used_since(self, entry: Entry, path: Path) -> bool:
        """Whether another process used the block after us; then it is entered again."""
        try:
            used = path.lstat().st_mtime
        except OSError:
            return False
        if used <= max(entry.used, entry.noted) + CLOCK_SLACK_SECONDS:
            return False
        with self._lock:
            self._index.enter_again(entry, used)
        return True
