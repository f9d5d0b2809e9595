"""The tier itself: blocks of one model in a folder that several processes share.

Nothing is fsynced: the tier is a cache. What a crash of the machine leaves half on the disk fails
its checksum and is a miss; a killed process loses nothing that it had put in place, since files
appear whole, by rename.
"""

from __future__ import annotations

import errno
import stat
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from prefixctl.core.policy.pins import PinOutcome
from prefixctl.core.policy.tier import Rules
from prefixctl.errors import InputError
from prefixctl.tiers.block import (
    HEADER_BYTES,
    BadBlockError,
    Header,
    MissCause,
    footprint_bytes,
)
from prefixctl.tiers.counters import EvictionReason, TierCounters
from prefixctl.tiers.deposit import Deposit, RefusedError
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.files import look, told
from prefixctl.tiers.folder import block_name
from prefixctl.tiers.index import Index
from prefixctl.tiers.keyring import TAG_BYTES, KeyRing
from prefixctl.tiers.learn import Learner
from prefixctl.tiers.lookout import Lookout
from prefixctl.tiers.marks import BadBlocks, Uses
from prefixctl.tiers.material import Material
from prefixctl.tiers.read import PASSING, read_block
from prefixctl.tiers.room import Room
from prefixctl.tiers.steady import SteadyTime, boot_seconds
from prefixctl.tiers.write import Place


class BlockStore:
    """Blocks of one material, bounded together with all others in the folder.

    Safe to use from several threads; several processes may open one folder, each with its own
    index. A block that another process has written is found by its file.

    Attributes:
        counters: What is counted.
        max_bytes: Disk space of all blocks in the folder, as far as this process is concerned. The
            folder's bound is the largest one of all processes that share it.
    """

    def __init__(
        self,
        path: Path,
        *,
        material: Material,
        block_bytes: int,
        max_bytes: int,
        rules: Rules | None = None,
        keyring: KeyRing | None = None,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = boot_seconds,
    ) -> None:
        """Open the folder and read the header of every block of the material.

        Args:
            path: The folder; made if it is not there.
            material: What the blocks depend on.
            block_bytes: KV bytes of one block.
            max_bytes: Disk space of the whole folder.
            rules: What to keep.
            keyring: Encrypts blocks with the key of their owner.
            clock: The time in seconds since 1970.
            elapsed: Seconds that pass whatever somebody does to the clock.

        Raises:
            InputError: If the folder cannot be used, or not one block fits.
        """
        self.max_bytes = max_bytes
        self.block_bytes = block_bytes
        self.counters = TierCounters("nvme")
        self._clock = clock
        self._keyring = keyring
        self._material = material
        self._rules = rules or Rules()
        self._file_bytes = HEADER_BYTES + block_bytes + (TAG_BYTES if keyring else 0)
        self._footprint = footprint_bytes(self._file_bytes)
        if self._footprint > max_bytes:
            raise InputError(
                f"a tier of {max_bytes:,} bytes holds no block of {self._footprint:,}",
                path=str(path),
                hint="make the tier larger",
            )
        self._lock = Lock()
        self._bad = BadBlocks(keyring)
        self.directory = TierDirectory(path)
        with ExitStack() as undo, told(path):
            undo.callback(self.directory.close)
            self._folder = self.directory.introduce(
                material.folder,
                {"material": material.digest.hex(), "block_bytes": block_bytes, **material.facts},
                clock(),
                max_bytes,
            )
            self._uses = Uses(self._folder, self._rules.ttl_seconds, clock)
            self._start(SteadyTime(clock, elapsed))
            undo.pop_all()

    def _start(self, time_now: Callable[[], float]) -> None:
        """Learn what is there, and make it fit."""
        material, max_bytes = self._material, self.max_bytes
        slots = max_bytes // self._footprint + 1
        self._index = Index(slots=slots, rules=self._rules, clock=self._clock)
        self._lookout = Lookout(
            self.directory,
            material.folder,
            index=self._index,
            lock=self._lock,
            max_bytes=max_bytes,
            ttl_seconds=self._rules.ttl_seconds,
            time_now=time_now,
        )
        room = Room(
            self.directory,
            material.folder,
            self._lookout,
            index=self._index,
            lock=self._lock,
            counters=self.counters,
            footprint=self._footprint,
        )
        self._learner = Learner(
            self.directory,
            material,
            index=self._index,
            lock=self._lock,
            counters=self.counters,
            file_bytes=self._file_bytes,
        )
        self._deposit = Deposit(
            self.directory,
            self._lookout,
            room,
            file_bytes=self._file_bytes,
            keyring=self._keyring,
            refresh=self._refresh,
        )
        self._refresh()
        self._lookout.look(0, self._refresh)
        room.shrink()

    def contains(self, key: bytes) -> bool:
        """Whether a block may be there; only `load` can tell that it is sound.

        Waits for the index, which nobody holds for long; looks at the disk's directory if the block
        is not known.
        """
        self._forgive()
        with self._lock:
            cause = self._bad.cause(key)
            known = key in self._index.entries and not self._index.is_expired(key)
        if cause is None and not known:
            cause = self._look(key)
        if cause is not None:
            self.counters.miss(cause)
        return cause is None

    def load(self, key: bytes, into: memoryview) -> MissCause | None:
        """Read a block and verify it; None if it is good.

        Args:
            key: Its key.
            into: `block_bytes` bytes; after a miss their content means nothing.
        """
        started = time.perf_counter()
        path = self._folder / block_name(key)
        try:
            if self._keyring is not None:
                self._keyring.refresh()
                self._forgive()
            header, used = self._read(path, key, into)
        except BadBlockError as bad:
            self._reject(key, path, bad.cause, useless=bad.useless)
            return bad.cause
        except OSError as exc:
            cause = MissCause.ABSENT if exc.errno == errno.ENOENT else MissCause.UNREADABLE
            self._reject(key, path, cause, useless=exc.errno not in PASSING)
            return cause
        except InputError:
            self.counters.miss(MissCause.FOREIGN)
            return MissCause.FOREIGN
        with self._lock:
            self._index.add(header, used)
        self.counters.hit(time.perf_counter() - started)
        return None

    def use(self, keys: Sequence[bytes]) -> None:
        """Blocks of one request were loaded, the root first: they stay longer."""
        now = self._clock()
        with self._lock:
            self._index.use(keys)
            stale = [
                entry
                for key in keys
                if (entry := self._index.entries.get(key)) and self._uses.is_stale(entry, now)
            ]
        self._uses.note(stale, now)

    def put(self, place: Place, body: bytes | memoryview) -> bool:
        """Store a block; True if it is in the tier afterwards.

        A block that does not get in is counted with the reason; nothing is raised for it.

        Raises:
            ValueError: If body, key or label have a wrong size.
        """
        if len(body) != self.block_bytes:
            raise ValueError(f"a block of {len(body):,} bytes, not {self.block_bytes:,}")
        place.check()
        with self._lock:
            replace = place.key in self._bad
            known = place.key in self._index.entries and not self._index.is_expired(place.key)
        if known and not replace:
            return True
        path = self._folder / block_name(place.key)
        if not replace:
            with suppress(OSError):  # what is wrong there shows when the block is written
                status = look(path)
                if stat.S_ISREG(status.st_mode) and not self._uses.is_old(status.st_mtime):
                    return True
                replace = True
        started = time.perf_counter()
        header = place.header(
            material=self._material.digest,
            body_bytes=self.block_bytes,
            stored_bytes=self._file_bytes - HEADER_BYTES,
            created=self._clock(),
        )
        try:
            stored = self._deposit.put(header, body, path, replace=replace)
        except RefusedError as refused:
            self.counters.refused(refused.reason)
            return False
        if stored is None:
            self._learner.find([place.key])
            return True
        with self._lock:
            if replace:
                self._bad.drop(place.key)
                self._index.remove(place.key)
            self._index.add(stored, stored.created)
        self.counters.stored(time.perf_counter() - started)
        return True

    def _forgive(self) -> None:
        if self._bad.are_stale:
            with self._lock:
                self._bad.forgive()

    def keys(self) -> list[bytes]:
        """The keys that this process knows of."""
        with self._lock:
            return list(self._index.entries)

    def place_of(self, key: bytes) -> Place:
        """Where a known block belongs; KeyError if it is not known."""
        with self._lock:
            entry = self._index.entries[key]
        return Place(
            key=key, parent=entry.parent, depth=entry.depth, owner=entry.owner, label=entry.label
        )

    def pin(self, keys: Sequence[bytes]) -> PinOutcome:
        """Keep blocks, the root first, up to the share of the rules."""
        with self._lock:
            return self._index.pin(keys)

    def unpin(self, keys: Sequence[bytes]) -> int:
        """Let pinned blocks go again; returns how many were pinned."""
        with self._lock:
            return self._index.unpin(keys)

    def want(self, keys: Sequence[bytes]) -> None:
        """Keep these blocks and no others, the root first: those that are there or will come.

        This process does not evict them, and they do not expire as long as `renew` is called.
        """
        with self._lock:
            self._index.want(keys)

    def renew(self) -> None:
        """Look for wanted blocks that others have written, and note that the kept ones are used.

        Another process that shares the folder takes them for used, and evicts others first.
        """
        with self._lock:
            _, unknown = self._index.wanted()
        self._learner.find(unknown)
        now = self._clock()
        with self._lock:
            kept, _ = self._index.wanted()
        self._uses.note([entry for entry in kept if self._uses.is_stale(entry, now)], now)

    def discard(self, key: bytes) -> None:
        """Remove a block, if it is there and can be."""
        with suppress(OSError), self.directory.locked():
            self.directory.remove(self._folder / block_name(key), self._footprint)
        with self._lock:
            self._index.remove(key)
            self._bad.drop(key)

    def forget(self, tags: Collection[bytes]) -> int:
        """Let go of all blocks of these owners, whose files somebody removes.

        What they ask for later is stored again.

        Returns:
            How many blocks there were.
        """
        with self._lock:
            keys = [key for key, entry in self._index.entries.items() if entry.owner in tags]
        forgotten = self._learner.forget(keys)
        self.counters.evicted(EvictionReason.PURGED, forgotten)
        return forgotten

    def is_there(self, key: bytes) -> bool:
        """Whether a block that has not expired lies on the disk; nothing is counted."""
        return self._look(key) is None

    def refresh(self) -> None:
        """Learn what other processes have written and removed, and set the total right.

        Files that are no blocks are removed. A disk that fails is read another time.
        """
        with suppress(OSError):
            self._refresh()

    def _refresh(self) -> None:
        self._learner.refresh(self._lookout.bound // self._footprint + 1)

    def snapshot(self) -> dict[str, Any]:
        """Counters and occupancy as plain values."""
        with self._lock:
            blocks, pinned = len(self._index), self._index.pinned
        return {
            **self.counters.snapshot(),
            "blocks": blocks,
            "pinned_blocks": pinned,
            "bytes": self.directory.total_bytes,
            "max_bytes": self._lookout.bound,
        }

    def close(self) -> None:
        """Let go of the folder."""
        self.directory.close()

    def _look(self, key: bytes) -> MissCause | None:
        """Why a block that is not in the index is not there; None if its file is."""
        try:
            status = look(self._folder / block_name(key))
        except FileNotFoundError:
            return MissCause.ABSENT
        except OSError:
            return MissCause.UNREADABLE
        return MissCause.EXPIRED if self._uses.is_old(status.st_mtime) else None

    def _read(self, path: Path, key: bytes, into: memoryview) -> tuple[Header, float]:
        header, used = read_block(path, self._material.digest, key, into, self._keyring)
        if self._uses.is_old(used):
            raise BadBlockError(MissCause.EXPIRED, useless=False)
        return header, used

    def _reject(self, key: bytes, path: Path, cause: MissCause, *, useless: bool) -> None:
        """Count a miss, and see that the file is gone or at least not asked for again.

        A file that is of use to others stays in the index, so that it can be evicted. What has
        expired is not noted: its age says so, and the clock may be set right.
        """
        self.counters.miss(cause)
        gone = cause is MissCause.ABSENT
        if useless:
            with suppress(OSError), self.directory.locked():
                if self.directory.remove(path, self._footprint):
                    self.counters.evicted(EvictionReason.DAMAGED)
                gone = True
        with self._lock:
            if gone:
                self._index.remove(key)
                self._bad.drop(key)
            elif cause is not MissCause.EXPIRED and (cause is not MissCause.UNREADABLE or useless):
                self._bad.add(key, cause)
