"""LRU, which vLLM has, and the classical policies that the simulator compares with."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.leaves import HeapPolicy


class LruPolicy(HeapPolicy):
    """Least recently used: the order of vLLM's free queue, tails before what they hang on."""

    def free(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.free`."""
        self._tick += 1
        tick, stamps = self._tick, self.blocks.stamp
        for block in blocks:
            stamps[block] = tick
        super().free(blocks)

    def priority(self, block: int) -> float:
        """When it was last used."""
        return self.blocks.stamp[block]


class FifoPolicy(HeapPolicy):
    """First in, first out, among the leaves."""

    def priority(self, block: int) -> float:
        """When its content was computed."""
        return self.blocks.born[block]


class LfuPolicy(HeapPolicy):
    """Least frequently used while cached, without ageing; the least recent among equals.

    A warning more than a choice: blocks that were popular once never leave.
    """

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """See `EvictionPolicy.admit`."""
        super().admit(blocks, keys, parent, owner)
        self._use(blocks, first=True)

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """See `EvictionPolicy.hold`."""
        super().hold(blocks)
        if hit:
            self._use(blocks, first=False)

    def _use(self, blocks: Sequence[int], *, first: bool) -> None:
        self._tick += 1
        stamps, counts = self.blocks.stamp, self.blocks.label
        for block in blocks:
            counts[block] = 1 if first else counts[block] + 1
            stamps[block] = self._tick

    def priority(self, block: int) -> float:
        """How often it was asked for since it was computed."""
        return self.blocks.label[block]


class AgedPolicy(LfuPolicy):
    """Greedy dual: a value plus the level that the last victim left with.

    The level rises with every eviction, so what is not asked for any more falls behind. With a
    cost of 1 for each block this is LFU with dynamic ageing (Arlitt et al., 1999); with a cost
    by depth it is GDSF (Cherkasova, 1998), priority L + frequency x cost / size.
    """

    def __init__(self, blocks: Blocks, *, depth_cost: float = 0.0) -> None:
        """Start with an empty order.

        Args:
            blocks: The arrays.
            depth_cost: What one block of depth adds to the cost of 1 of a block at the root.
        """
        super().__init__(blocks)
        self._depth_cost = depth_cost
        self._level = 0.0
        self._value = [0.0] * blocks.size

    def _use(self, blocks: Sequence[int], *, first: bool) -> None:
        super()._use(blocks, first=first)
        counts, depths = self.blocks.label, self.blocks.depth
        for block in blocks:
            cost = 1 + self._depth_cost * depths[block]
            self._value[block] = self._level + counts[block] * cost

    def priority(self, block: int) -> float:
        """The level at its last use plus its value."""
        return self._value[block]

    def chosen(self, block: int, priority: float) -> None:  # noqa: ARG002
        """The level rises to what the victim left with."""
        self._level = max(self._level, priority)
