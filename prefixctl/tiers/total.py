"""The bytes of all blocks in a folder: one small file, and the lock under which they change."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import xxhash

from prefixctl.errors import InputError
from prefixctl.tiers import files
from prefixctl.tiers.files import FILE_MODE, lock_file

_FIELDS = struct.Struct("<qqq")
_SUM_BYTES = 8


class Counts(NamedTuple):
    """What the file says.

    Attributes:
        total: The bytes of all blocks.
        added: Those of all that were ever added.
        mended: A number that is another one each time it had to be counted again.
    """

    total: int
    added: int
    mended: int


class Total:
    """The file `total`, opened by one process.

    Who gets the lock looks whether it is still the file that it was and says something; if not it
    is made and counted again, before anything else happens.

    Attributes:
        threads: Excludes the other threads of this process, which the file's lock does not.
    """

    def __init__(
        self,
        path: Path,
        *,
        make_folder: Callable[[], None],
        count: Callable[[], int],
        came_back: Callable[[], None],
    ) -> None:
        """Nothing is opened yet.

        Args:
            path: The file.
            make_folder: Makes the folder around it, if it may; raises InputError if not.
            count: The bytes of all that lies in the folder.
            came_back: Called with the lock held once the file, or all of the folder, was removed
                and made again.
        """
        self.threads = Lock()
        self._path = str(path)
        self._make_folder = make_folder
        self._count = count
        self._came_back = came_back
        self._descriptor = -1

    def open(self) -> None:
        """Open the file, or make it.

        Raises:
            InputError: If the folder is somebody's who has no tier there.
            OSError: If it cannot be used.
        """
        self._make_folder()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        opened = os.open(self._path, flags, FILE_MODE)
        self._descriptor = files.in_place_of(self._descriptor, opened)
        self._opened = _identity(os.fstat(self._descriptor))

    def close(self) -> None:
        """Close the file, if it is open."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other threads and processes that change the total.

        Raises:
            TimeoutError: If somebody else keeps the lock.
            OSError: If the folder was removed and cannot be made again, or not be counted.
        """
        if not self.threads.acquire(timeout=files.LOCK_SECONDS):
            raise TimeoutError(errno.ETIMEDOUT, "locked by another thread of this process")
        try:
            if self._descriptor < 0:
                raise OSError(errno.EBADF, "the folder was closed")
            try:
                self._take()
                yield
            finally:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self.threads.release()

    @property
    def counts(self) -> Counts:
        """Nothing, if the file does not say it: the next one who has the lock counts."""
        return self._read() or Counts(0, 0, 0)

    def write(self, counts: Counts) -> None:
        """Say something else; the caller holds the lock."""
        data = _FIELDS.pack(*counts)
        os.pwrite(self._descriptor, data + xxhash.xxh3_64_digest(data), 0)

    def add(self, size: int) -> None:
        """Change the total by so many bytes; the caller holds the lock."""
        total, added, mended = self.counts
        if total + size < 0:
            self.count_again()
        else:
            self.write(Counts(total + size, added + max(size, 0), mended))

    def count_again(self) -> None:
        """Set it right: it is not what it should be. The caller holds the lock.

        Raises:
            OSError: If the folder cannot be read.
        """
        self.write(Counts(self._count(), added=0, mended=secrets.randbits(62)))
        os.ftruncate(self._descriptor, _FIELDS.size + _SUM_BYTES)

    def _take(self) -> None:
        lock_file(self._descriptor)
        if not self._is_in_place():
            self._take_again()
        if self._read() is None:
            self.count_again()

    def _take_again(self) -> None:
        """Somebody has removed the file, or all of the folder."""
        while not self._is_in_place():
            try:
                self.open()
            except InputError as exc:
                raise PermissionError(errno.EPERM, exc.message, exc.path) from exc
            lock_file(self._descriptor)
        self._came_back()

    def _is_in_place(self) -> bool:
        """Whether the file is still the one that is locked."""
        try:
            return _identity(os.lstat(self._path)) == self._opened
        except OSError:
            return False

    def _read(self) -> Counts | None:
        data = os.pread(self._descriptor, _FIELDS.size + _SUM_BYTES + 1, 0)
        counted, checked = data[: _FIELDS.size], data[_FIELDS.size :]
        if len(counted) != _FIELDS.size or xxhash.xxh3_64_digest(counted) != checked:
            return None
        return Counts._make(_FIELDS.unpack(counted))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
