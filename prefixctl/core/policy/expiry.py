"""Time to live: a block that nobody used for too long is not found any more."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from prefixctl.core.policy.port import EvictionPolicy


class Expiry:
    """A policy with the times of last use, asked when blocks are looked up.

    Nothing is swept: an old block costs nothing until somebody asks for it or its room is
    needed. A parent is never older than its children, so what is behind a stale block of a
    chain is stale too.
    """

    def __init__(
        self, inner: EvictionPolicy, *, size: int, ttl_seconds: float, clock: Callable[[], float]
    ) -> None:
        """Start without any block.

        Args:
            inner: The policy that orders the blocks.
            size: Blocks of the pool.
            ttl_seconds: How long an idle block lives.
            clock: The time in seconds.
        """
        self._inner = inner
        self._ttl = ttl_seconds
        self._clock = clock
        self._freed = [float("inf")] * size

    def fresh(self, blocks: Sequence[int]) -> int:
        """How many leading blocks of a looked-up chain are alive; in use is always alive."""
        oldest = self._clock() - self._ttl
        freed = self._freed
        for position, block in enumerate(blocks):
            if freed[block] < oldest:
                return position
        return len(blocks)

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """See `EvictionPolicy.admit`."""
        self._use(blocks)
        self._inner.admit(blocks, keys, parent, owner)

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """See `EvictionPolicy.hold`."""
        self._use(blocks)
        self._inner.hold(blocks, hit=hit)

    def free(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.free`."""
        now = self._clock()
        for block in blocks:
            self._freed[block] = now
        self._inner.free(blocks)

    def evict(self, count: int) -> list[int]:
        """See `EvictionPolicy.evict`."""
        return self._inner.evict(count)

    def drop(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.drop`."""
        self._inner.drop(blocks)

    def _use(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._freed[block] = float("inf")
