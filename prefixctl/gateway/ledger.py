"""The buckets of all tenants, in one file that all API processes of a host have mapped.

Why a mapped file and a lock on it: every request touches it, so it has to cost microseconds, and
the kernel lets go of the lock when a process dies. A database would cost a write and a wait for
each request; a bucket in each process would be as many limits as there are processes. What is
lost with the file is a minute of counts.

Times are those of the host's monotonic clock; after a restart of the host the file begins anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
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
            UnreachableError: If it cannot be opened.
        """
        self._clock = clock
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(path, flags, 0o600)
            with self._locked():
                self._prepare()
                self._map = mmap.mmap(self._file, _SIZE)
        except OSError as exc:
            raise UnreachableError(
                f"the table of rates cannot be used: {exc.strerror}", path=str(path)
            ) from exc

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()
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

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _prepare(self) -> None:
        header = _HEADER.pack(_MAGIC, _boot_id())
        if os.pread(self._file, _HEADER.size, 0) != header:
            os.ftruncate(self._file, max(_SIZE, os.fstat(self._file).st_size))
            os.pwrite(self._file, header + bytes(_SIZE - _HEADER.size), 0)

    def _find(self, tenant: str, now: float) -> _Slot | None:
        """The tenant's slot, or a free one; None if all that it may have are busy."""
        wanted = _number(tenant)
        free: _Slot | None = None
        for step in range(PROBES):
            offset = _HEADER.size + (wanted + step) % SLOTS * _SLOT.size
            number, requests_full_at, tokens_full_at = _SLOT.unpack_from(self._map, offset)
            if number == wanted:
                return _Slot(offset, requests_full_at, tokens_full_at)
            if free is None and max(requests_full_at, tokens_full_at) <= now:
                free = _Slot(offset, now, now)
            if not number:
                break
        return free

    def _store(self, tenant: str, slot: _Slot) -> None:
        _SLOT.pack_into(
            self._map, slot.offset, _number(tenant), slot.requests_full_at, slot.tokens_full_at
        )


def _number(tenant: str) -> int:
    return int.from_bytes(hashlib.blake2b(tenant.encode(), digest_size=8).digest()) | 1


def _boot_id() -> bytes:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return b""
