"""What a tier counts, as plain numbers that a snapshot hands on."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from enum import StrEnum
from threading import Lock
from typing import Any

from prefixctl.tiers.block import MissCause

LATENCY_BOUNDS_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
MOST_UNTAKEN = 16_384
"""Single latencies that are kept for somebody who takes them."""


class EvictionReason(StrEnum):
    """Why a block had to go."""

    SPACE = "space"
    EXPIRED = "expired"
    OLD_MODEL = "old_model"
    RETIRED = "retired"
    DAMAGED = "damaged"
    PURGED = "purged"


class RefusalReason(StrEnum):
    """Why a block was not stored."""

    DISK_FULL = "disk_full"
    NO_ROOM = "no_room"
    NO_KEY = "no_key"
    WEIGHTS_REPLACED = "weights_replaced"
    ERROR = "error"


class Latency:
    """A histogram of seconds."""

    __slots__ = ("buckets", "count", "seconds", "untaken")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_SECONDS) + 1)
        self.count = 0
        self.seconds = 0.0
        self.untaken: deque[float] = deque(maxlen=MOST_UNTAKEN)

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(LATENCY_BOUNDS_SECONDS, seconds)] += 1
        self.count += 1
        self.seconds += seconds
        self.untaken.append(seconds)

    def take(self) -> list[float]:
        """The latencies since the last call."""
        taken = list(self.untaken)
        self.untaken.clear()
        return taken

    def snapshot(self) -> dict[str, Any]:
        """Plain values; the buckets are not cumulative, the last one is unbounded."""
        return {
            "bounds_seconds": list(LATENCY_BOUNDS_SECONDS),
            "buckets": list(self.buckets),
            "count": self.count,
            "seconds": self.seconds,
        }


class TierCounters:
    """The counters of one tier; safe to use from several threads."""

    def __init__(self, tier: str) -> None:
        self.tier = tier
        self._lock = Lock()
        self._hits = 0
        self._stored = 0
        self._misses: Counter[str] = Counter({cause.value: 0 for cause in MissCause})
        self._evictions: Counter[str] = Counter({reason.value: 0 for reason in EvictionReason})
        self._refusals: Counter[str] = Counter({reason.value: 0 for reason in RefusalReason})
        self._load = Latency()
        self._store = Latency()

    def hit(self, seconds: float) -> None:
        """A block was loaded and verified."""
        with self._lock:
            self._hits += 1
            self._load.observe(seconds)

    def miss(self, cause: MissCause) -> None:
        """A block was asked for and not served."""
        with self._lock:
            self._misses[cause.value] += 1

    def stored(self, seconds: float) -> None:
        """A block was written."""
        with self._lock:
            self._stored += 1
            self._store.observe(seconds)

    def refused(self, reason: RefusalReason) -> None:
        """A block was not written."""
        with self._lock:
            self._refusals[reason.value] += 1

    def evicted(self, reason: EvictionReason, blocks: int = 1) -> None:
        """Blocks left."""
        with self._lock:
            self._evictions[reason.value] += blocks

    def take_latencies(self) -> dict[str, list[float]]:
        """Seconds of each ``load`` and ``store`` since the last call."""
        with self._lock:
            return {"load": self._load.take(), "store": self._store.take()}

    def snapshot(self) -> dict[str, Any]:
        """All counters since the start, as plain values."""
        with self._lock:
            return {
                "tier": self.tier,
                "hits": self._hits,
                "misses": dict(self._misses),
                "stored": self._stored,
                "refused": dict(self._refusals),
                "evictions": dict(self._evictions),
                "load": self._load.snapshot(),
                "store": self._store.snapshot(),
            }
