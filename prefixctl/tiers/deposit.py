"""A block's way to its place, within the bound of the folder."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from prefixctl.tiers.block import Header, footprint_bytes
from prefixctl.tiers.counters import RefusalReason
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.files import allocate
from prefixctl.tiers.keyring import KeyRing
from prefixctl.tiers.lookout import Lookout
from prefixctl.tiers.room import Room
from prefixctl.tiers.write import encrypted, write_block

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
FULL_PAUSE_SECONDS = 1.0


class RefusedError(Exception):
    """A block does not get in; caught by the store, which counts the reason."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Deposit:
    """Makes room, writes and puts in place.

    A disk that is full or fails, or a folder that somebody keeps locked, is left alone a while.
    """

    def __init__(
        self,
        directory: TierDirectory,
        lookout: Lookout,
        room: Room,
        *,
        file_bytes: int,
        keyring: KeyRing | None,
        refresh: Callable[[], None],
    ) -> None:
        """Nothing is written yet.

        Args:
            directory: The folder.
            lookout: Looks around when space is short.
            room: Evicts.
            file_bytes: The size of our files.
            keyring: Encrypts blocks with the key of their owner.
            refresh: Reads the folder anew.
        """
        self._directory = directory
        self._lookout = lookout
        self._room = room
        self._file_bytes = file_bytes
        self._keyring = keyring
        self._refresh = refresh
        self._paused_until = 0.0
        self._paused_for = RefusalReason.DISK_FULL

    def put(
        self, header: Header, body: bytes | memoryview, path: Path, *, replace: bool
    ) -> Header | None:
        """Store a block.

        Args:
            header: Its header, still without checksum and nonce.
            body: Its KV bytes.
            path: Its place.
            replace: Whether a file that is there is of no use.

        Returns:
            The header as it was stored; None if another process was faster, whose file stays.

        Raises:
            RefusedError: If it does not get in.
        """
        if time.monotonic() < self._paused_until:
            raise RefusedError(self._paused_for)
        header, stored = encrypted(header, body, self._keyring)
        if stored is None:
            raise RefusedError(RefusalReason.NO_KEY)
        header = header.sealed(stored)
        try:
            descriptor, temporary = self._reserve()
            try:
                try:
                    allocate(descriptor, self._file_bytes)
                    write_block(descriptor, header, stored)
                finally:
                    os.close(descriptor)
                ours = self._directory.commit(temporary, path, self._file_bytes, replace=replace)
            except BaseException:
                self._directory.abandon(temporary, self._file_bytes)
                raise
        except OSError as exc:
            raise self._failed(exc) from exc
        return header if ours else None

    def _reserve(self) -> tuple[int, Path]:
        """Space for one file; blocks are evicted for it."""
        size = footprint_bytes(self._file_bytes)
        self._lookout.look(size, self._refresh)
        looked_again = False
        while True:
            with self._directory.locked():
                fits = self._room.make(size)
                if fits:
                    return self._directory.reserve(self._file_bytes)
            if fits is False:
                if looked_again or not self._lookout.look_again(self._refresh):
                    raise RefusedError(RefusalReason.NO_ROOM)
                looked_again = True

    def _failed(self, exc: OSError) -> RefusedError:
        full = exc.errno in DISK_ERRORS
        reason = RefusalReason.DISK_FULL if full else RefusalReason.ERROR
        if full or isinstance(exc, TimeoutError):
            self._paused_for = reason
            self._paused_until = time.monotonic() + FULL_PAUSE_SECONDS
        return RefusedError(reason)
