"""Who shares a folder, and what may go there that is not the policy's choice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.files import File
from prefixctl.tiers.index import LOOK_AGAIN_SECONDS, Index, expired
from prefixctl.tiers.others import Others, standings
from prefixctl.tiers.writers import Writer

LONGEST_WAIT_SECONDS = 64.0
"""Until other models are looked at again that had nothing to give."""
REFRESH_SECONDS = 600.0
"""How often a full folder is read anew, in case somebody has removed files by hand."""


class Lookout:
    """Looks around while space is short: seldom, and without the folder's lock.

    Attributes:
        bound: Bytes that all blocks may take: the largest bound of all processes that share them,
            so that one with less does not remove what the others may have.
        others: Blocks of other models that may go; guarded by the folder's lock.
    """

    def __init__(
        self,
        directory: TierDirectory,
        material: str,
        *,
        index: Index,
        lock: Lock,
        max_bytes: int,
        ttl_seconds: float | None,
        time_now: Callable[[], float],
    ) -> None:
        """See who is there; nothing is listed before space is short.

        Args:
            directory: The folder.
            material: The name of our own part of it.
            index: Of our own blocks.
            lock: Guards the index.
            max_bytes: Our own bound.
            ttl_seconds: When blocks have expired.
            time_now: Seconds since 1970, that do not jump forward; see `SteadyTime`.
        """
        self._directory = directory
        self._material = material
        self._index = index
        self._lock = lock
        self._max_bytes = max_bytes
        self._ttl = float("inf") if ttl_seconds is None else ttl_seconds
        self._time = time_now
        self._looking = Lock()
        self._writers: frozenset[Writer] = frozenset()
        self._listing_wait = self._again_wait = LOOK_AGAIN_SECONDS
        self._next_look = self._next_again = self._next_listing = 0.0
        self._next_refresh = time.monotonic() + REFRESH_SECONDS
        self.others = Others({}, ())
        self._meet()

    def expired_before(self) -> float:
        """Our blocks that were last used before that have expired."""
        return self._time() - self._ttl

    def others_expired_before(self) -> float:
        """Theirs, also if the clock was wrong already when we started."""
        return min(self._time(), self.others.newest) - self._ttl

    def look(self, size: int, refresh: Callable[[], None]) -> None:
        """Before blocks are evicted: if space is short, see what may go.

        Args:
            size: What is to be stored.
            refresh: Reads the folder anew and sets the total right.
        """
        now = time.monotonic()
        if now < self._next_look and not self.others.run_dry:
            return
        if self._directory.total_bytes + size <= self._max_bytes:
            return
        with self._alone() as alone:
            if not alone:
                return
            self._next_look = now + LOOK_AGAIN_SECONDS
            changed = self._meet()
            if changed:
                self._forget_others()
            if changed or now >= self._next_refresh:
                self._next_refresh = now + REFRESH_SECONDS
                refresh()
            if self._directory.total_bytes + size > self.bound:
                self._look_for_expired()
                self._look_at_others()

    def look_again(self, refresh: Callable[[], None]) -> bool:
        """After nothing was found that may go: whether the folder was read anew.

        Less and less often as long as nothing comes of it; see `eased`.
        """
        with self._alone() as alone:
            if not alone or time.monotonic() < self._next_again:
                return False
            self._meet()
            self._forget_others()
            refresh()
            self._look_at_others()
            self._next_again = time.monotonic() + self._again_wait
            self._again_wait = min(2 * self._again_wait, LONGEST_WAIT_SECONDS)
            return True

    def eased(self) -> None:
        """There was room for something."""
        self._again_wait = LOOK_AGAIN_SECONDS

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other thread is looking; none waits for another one."""
        alone = self._looking.acquire(blocking=False)
        try:
            yield alone
        finally:
            if alone:
                self._looking.release()

    def _meet(self) -> bool:
        """See who shares the folder; whether somebody has come, gone or been killed."""
        found = self._directory.writers()
        # A tool's stores nothing.
        storing = frozenset(w for w in found if w is not None and w.material)
        before, self._writers = self._writers, storing
        self.bound = max([self._max_bytes, *(writer.max_bytes for writer in self._writers)])
        return before != self._writers or None in found

    def _look_for_expired(self) -> None:
        before = self.expired_before()
        with self._lock:
            if self._index.oldest >= before:
                return
            entries = self._index.all_entries()
        found = expired(entries, before)
        with self._lock:
            self._index.expire(*found)

    def _look_at_others(self) -> None:
        """List other models, less and less often as long as there is nothing of use."""
        due = time.monotonic() >= self._next_listing or self.others.run_dry
        if self.others.any_may_go or not due:
            return
        served = {writer.material for writer in self._writers}
        models = standings(self._directory.materials(), self._material, served)
        others = Others(models, self._files(models))
        wait = 0.0 if others.any_may_go else 2 * self._listing_wait
        self._listing_wait = min(max(wait, LOOK_AGAIN_SECONDS), LONGEST_WAIT_SECONDS)
        self._next_listing = time.monotonic() + self._listing_wait
        with self._directory.locked():
            self.others = others

    def _forget_others(self) -> None:
        """Somebody has come or gone: a model's standing may be another one."""
        self._next_listing = 0.0
        with self._directory.locked():
            self.others = Others({}, ())

    def _files(self, models: Iterable[str]) -> Iterator[tuple[str, File]]:
        for name in models:
            for file in self._directory.files(name):
                yield name, file
