"""Pins: blocks that no eviction may choose, up to a cap."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from prefixctl.core.policy.port import EvictionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PinOutcome:
    """What became of a wish to pin.

    Attributes:
        pinned: Blocks that are pinned by it now.
        refused: Blocks that are not.
        reason: Why not, if any were refused.
    """

    pinned: int
    refused: int
    reason: str = ""


class Pinned:
    """A policy whose pinned blocks stay in use from the point of view of the policy inside.

    Statistics go on inside, so a block that is unpinned stands where its use has put it.
    """

    def __init__(self, inner: EvictionPolicy, *, size: int, cap: int) -> None:
        """Nothing is pinned at first.

        Args:
            inner: The policy that orders the rest.
            size: Blocks of the pool.
            cap: Blocks that may be pinned at most.
        """
        self.cap = cap
        self._inner = inner
        self._pinned = bytearray(size)
        self._idle = bytearray(size)
        self._count = 0
        self._withheld = 0

    @property
    def pinned(self) -> int:
        """Blocks that are pinned."""
        return self._count

    @property
    def withheld(self) -> int:
        """Pinned blocks that nobody uses: free to the pool, and yet not to be had."""
        return self._withheld

    def is_pinned(self, block: int) -> bool:
        """Whether a block is pinned."""
        return bool(self._pinned[block])

    def pin(self, blocks: Sequence[int]) -> PinOutcome:
        """Pin cached blocks, root first; what is beyond the cap is refused.

        Pin a prefix from its root on: a pinned child of an unpinned parent is still kept, but
        the parent is kept for its sake only.
        """
        fresh = [block for block in dict.fromkeys(blocks) if not self._pinned[block]]
        taken = fresh[: max(self.cap - self._count, 0)]
        self._inner.hold([block for block in taken if self._idle[block]], hit=False)
        for block in taken:
            self._pinned[block] = 1
            self._withheld += self._idle[block]
        self._count += len(taken)
        refused = len(fresh) - len(taken)
        reason = f"the cap of {self.cap:,} pinned blocks is reached" if refused else ""
        return PinOutcome(pinned=len(blocks) - refused, refused=refused, reason=reason)

    def unpin(self, blocks: Sequence[int]) -> int:
        """Give pinned blocks back to the order, deepest first; returns how many were pinned."""
        taken = [block for block in dict.fromkeys(blocks) if self._pinned[block]]
        self._release(taken)
        self._inner.free([block for block in taken if self._idle[block]])
        return len(taken)

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """See `EvictionPolicy.admit`."""
        self._inner.admit(blocks, keys, parent, owner)

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """See `EvictionPolicy.hold`."""
        for block in blocks:
            if self._idle[block]:
                self._idle[block] = 0
                self._withheld -= self._pinned[block]
        self._inner.hold(blocks, hit=hit)

    def free(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.free`."""
        for block in blocks:
            self._idle[block] = 1
            self._withheld += self._pinned[block]
        self._inner.free([block for block in blocks if not self._pinned[block]])

    def evict(self, count: int) -> list[int]:
        """See `EvictionPolicy.evict`."""
        victims = self._inner.evict(count)
        for block in victims:
            self._idle[block] = 0
        return victims

    def drop(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.drop`: emptied blocks are no longer pinned."""
        self._release([block for block in blocks if self._pinned[block]])
        for block in blocks:
            self._idle[block] = 0
        self._inner.drop(blocks)

    def _release(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._pinned[block] = 0
            self._withheld -= self._idle[block]
        self._count -= len(blocks)
