"""What one process remembers of single blocks beside the order: which are bad, which were used."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from prefixctl.tiers.block import MissCause
from prefixctl.tiers.folder import block_name
from prefixctl.tiers.index import Entry
from prefixctl.tiers.keyring import KeyRing

NOTE_SECONDS = 60.0
"""How often at most a use is written to the file, for other processes and the next start."""


class BadBlocks:
    """Blocks that were no good and whose files are still there; not to be asked for again.

    What has expired is not among them: its age says so, and the clock may be set right.
    """

    def __init__(self, keyring: KeyRing | None) -> None:
        """None at first; with a key ring those for which no key fitted are tried again."""
        self._causes: dict[bytes, MissCause] = {}
        self._keyring = keyring
        self._readings = 0 if keyring is None else keyring.readings

    def __contains__(self, key: bytes) -> bool:
        return key in self._causes

    def cause(self, key: bytes) -> MissCause | None:
        """Why a block is none, None if nothing is known against it."""
        return self._causes.get(key)

    def add(self, key: bytes, cause: MissCause) -> None:
        """A block was no good."""
        self._causes[key] = cause

    def drop(self, key: bytes) -> None:
        """Its file has gone, or is another one."""
        self._causes.pop(key, None)

    @property
    def are_stale(self) -> bool:
        """Whether the keys have changed since; see `forgive`."""
        return self._keyring is not None and self._keyring.readings != self._readings

    def forgive(self) -> None:
        """Once the keys have changed, blocks for which none fitted are looked at again."""
        if self._keyring is not None:
            self._readings = self._keyring.readings
            foreign = [k for k, c in self._causes.items() if c is MissCause.FOREIGN]
            for key in foreign:
                del self._causes[key]


class Uses:
    """When blocks were last used, as their files say it to other processes."""

    def __init__(self, folder: Path, ttl_seconds: float | None, clock: Callable[[], float]) -> None:
        """Set up.

        Args:
            folder: Where the blocks lie.
            ttl_seconds: How long a block lives that nobody uses, None for ever.
            clock: The time in seconds since 1970.
        """
        self._folder = folder
        self._ttl = ttl_seconds
        self._clock = clock
        self._seconds = NOTE_SECONDS if ttl_seconds is None else min(NOTE_SECONDS, ttl_seconds / 10)

    def is_old(self, used: float) -> bool:
        """Whether a block that was last used then has expired."""
        return self._ttl is not None and used < self._clock() - self._ttl

    def is_stale(self, entry: Entry, now: float) -> bool:
        """Whether it is a while since its use was noted, or the clock was set back."""
        return not 0 <= now - entry.noted < self._seconds

    def note(self, entries: Sequence[Entry], now: float) -> None:
        """Write to the files that their blocks are used now, in seconds since 1970."""
        for entry in entries:
            entry.noted = now
            with suppress(OSError):
                path = self._folder / block_name(entry.key)
                os.utime(path, (now, now), follow_symlinks=False)
