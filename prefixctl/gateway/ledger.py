"""The buckets of all tenants, in one file that all API processes of a host share.

Why a file and a lock on it: every request touches it, so it has to cost microseconds, and the
kernel lets go of the lock when a process dies. A database would cost a write and a wait for each
request; a bucket in each process would be as many limits as there are processes. What is lost
with the file is a minute of counts. It is read and not mapped: a mapped file that somebody cuts
short kills each process that touches it. Where it was removed, all go over to the next one.

Times are those of the host's monotonic clock; after a restart of the host the file begins anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from prefixctl.config import RateConfig
from prefixctl.errors import UnreachableError
from prefixctl.gateway.rates import give_back, take

SLOTS = 16_384
PROBES = 64
_HEADER = struct.Struct("<16s48s")
_SLOT = struct.Struct("<Qdd8x")
_MAGIC = b"prefixctl-rate-1"
_SIZE = _HEADER.size + SLOTS * _SLOT.size
NO_ROOM_SECONDS = 1.0
LOOK_SECONDS = 1.0
"""So often a process looks whether its file was removed."""


class _Slot(NamedTuple):
    offset: int
    requests_full_at: float
    tokens_full_at: float


class Ledger:
    """Takes requests and tokens from the buckets of tenants; see `prefixctl.gateway.rates`."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the file, and make it if it is missing.

        Args:
            path: The file; a local one.
            clock: Seconds that all processes of the host agree on.

        Raises:
            UnreachableError: If it cannot be opened. The other methods raise it where the file
                cannot be read or written, as on a full disk.
        """
        self._clock = clock
        self._path = path
        self._looked_at = clock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open()
        except OSError as exc:
            raise _unusable(path, exc) from exc
        with self._locked():
            self._prepare()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def take_request(self, tenant: str, rate: RateConfig) -> float:
        """Take one request; 0, or the seconds to wait if there is none left."""
        if rate.requests_per_minute is None:
            return 0.0
        now = self._clock()
        with self._locked():
            slot = self._find(tenant, now)
            if slot is None:
                return NO_ROOM_SECONDS
            taken = take(slot.requests_full_at, now, units=1, per_minute=rate.requests_per_minute)
            self._store(tenant, slot._replace(requests_full_at=taken.full_at))
        return taken.wait_seconds

    def take_tokens(self, tenant: str, tokens: int, rate: RateConfig) -> float:
        """Take prefill tokens; 0, or the seconds to wait if there are too few."""
        if rate.prefill_tokens_per_minute is None:
            return 0.0
        now = self._clock()
        with self._locked():
            slot = self._find(tenant, now)
            if slot is None:
                return NO_ROOM_SECONDS
            taken = take(
                slot.tokens_full_at, now, units=tokens, per_minute=rate.prefill_tokens_per_minute
            )
            self._store(tenant, slot._replace(tokens_full_at=taken.full_at))
        return taken.wait_seconds

    def give_back_tokens(self, tenant: str, tokens: int, rate: RateConfig) -> None:
        """Give tokens back that were not needed; negative ones are taken in addition."""
        if rate.prefill_tokens_per_minute is None or tokens == 0:
            return
        now = self._clock()
        with self._locked():
            slot = self._find(tenant, now)
            if slot is None:
                return
            full_at = give_back(
                max(slot.tokens_full_at, now),
                units=tokens,
                per_minute=rate.prefill_tokens_per_minute,
            )
            self._store(tenant, slot._replace(tokens_full_at=full_at))

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            now = self._clock()
            if now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                if not self._is_in_place():
                    self._go_over()
            yield
        except OSError as exc:
            raise _unusable(self._path, exc) from exc
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _is_in_place(self) -> bool:
        """Whether the file under the name is the one that is open."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _go_over(self) -> None:
        """The file was removed or replaced: take the one in its place, as every process will."""
        try:
            fresh = self._open()
        except OSError:
            return  # the removed one still serves the processes that have it
        os.close(self._file)
        self._file = fresh
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._prepare()

    def _prepare(self) -> None:
        header = _HEADER.pack(_MAGIC, _boot_id())
        size = os.fstat(self._file).st_size
        if os.pread(self._file, _HEADER.size, 0) != header:
            os.ftruncate(self._file, max(_SIZE, size))
            os.posix_fallocate(self._file, 0, _SIZE)
            os.pwrite(self._file, header + bytes(_SIZE - _HEADER.size), 0)
        elif size < _SIZE:
            os.posix_fallocate(self._file, 0, _SIZE)

    def _find(self, tenant: str, now: float) -> _Slot | None:
        """The tenant's slot, or a free one; None if all that it may have are busy."""
        wanted = _number(tenant)
        first = wanted % SLOTS
        free: _Slot | None = None
        for step, entry in enumerate(_SLOT.iter_unpack(self._read(first))):
            offset = _HEADER.size + (first + step) % SLOTS * _SLOT.size
            number, requests_full_at, tokens_full_at = entry
            if number == wanted:
                return _Slot(offset, requests_full_at, tokens_full_at)
            if free is None and max(requests_full_at, tokens_full_at) <= now:
                free = _Slot(offset, now, now)
            if not number:
                break
        return free

    def _read(self, first: int) -> bytes:
        """The slots that a tenant may have, from its first one; the table is a ring."""
        wrapped = max(first + PROBES - SLOTS, 0)
        parts = ((first, PROBES - wrapped), (0, wrapped))
        for _ in range(2):
            data = b"".join(
                os.pread(self._file, count * _SLOT.size, _HEADER.size + start * _SLOT.size)
                for start, count in parts
                if count
            )
            if len(data) == PROBES * _SLOT.size:
                break
            self._prepare()  # somebody cut it short
        return data

    def _store(self, tenant: str, slot: _Slot) -> None:
        data = _SLOT.pack(_number(tenant), slot.requests_full_at, slot.tokens_full_at)
        os.pwrite(self._file, data, slot.offset)


def _unusable(path: Path, exc: OSError) -> UnreachableError:
    return UnreachableError(f"the table of rates cannot be used: {exc.strerror}", path=str(path))


def _number(tenant: str) -> int:
    return int.from_bytes(hashlib.blake2b(tenant.encode(), digest_size=8).digest()) | 1


def _boot_id() -> bytes:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return b""
