"""The frame of all policies: leaves wait in a heap, the first one out is the victim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heappush

from prefixctl.core.policy.blocks import Blocks

SPARE_ENTRIES = 64
"""An order is cleared of what is no longer true when it has twice the pool's blocks and these."""


class LeafPolicy(ABC):
    """Eviction of idle leaves; what a policy adds is the order in which they go.

    A block enters the order when it becomes an idle leaf: freed without cached children, or
    uncovered by the eviction of its last child. So one request adds one entry, and one eviction
    at most one.

    Attributes:
        blocks: The arrays; several policies may share them (see `shares`).
        alone: Whether this policy may fall back to idle blocks that are no leaf.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.alone = True
        self._uncovered: Callable[[int], None] = self.enter

    def join(self, uncovered: Callable[[int], None]) -> None:
        """Become one order among several over the same blocks; see `shares`.

        Args:
            uncovered: Told the parents that lose their last child; they may be another's.
        """
        self.alone = False
        self._uncovered = uncovered

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,  # noqa: ARG002 - the port's; see `shares`
    ) -> None:
        """See `EvictionPolicy.admit`."""
        self.blocks.link(blocks, keys, parent)

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:  # noqa: ARG002
        """See `EvictionPolicy.hold`."""
        idle = self.blocks.idle
        for block in blocks:
            idle[block] = 0

    def free(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.free`."""
        idle, children = self.blocks.idle, self.blocks.children
        for block in blocks:
            idle[block] = 1
            if not children[block]:
                self.enter(block)

    def evict(self, count: int) -> list[int]:
        """See `EvictionPolicy.evict`."""
        victims: list[int] = []
        while len(victims) < count:
            block = self._first()
            chosen = [block] if block is not None else []
            if not chosen and self.alone:
                chosen = self.blocks.strays(count - len(victims))
            if not chosen:
                break
            victims += chosen
            for each in chosen:
                self._forget(each)
        return victims

    def drop(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.drop`."""
        for block in blocks:
            parent = self.blocks.unlink(block)
            if parent is not None:
                self._uncovered(parent)

    def _forget(self, block: int) -> None:
        """Take a victim out; its parent may become a leaf."""
        parent = self.blocks.unlink(block)
        if parent is not None:
            self._uncovered(parent)

    @abstractmethod
    def enter(self, block: int) -> None:
        """Put an idle leaf into the order."""

    @abstractmethod
    def _first(self) -> int | None:
        """Take the next victim out of the order, None if there is no idle leaf."""


class HeapPolicy(LeafPolicy):
    """Leaves in one heap: O(log n) for each entry, entries that went stale are skipped."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        self._heap: list[tuple[float, int, int, int]] = []
        self._most = 2 * blocks.size + SPARE_ENTRIES
        self._tick = 0

    @abstractmethod
    def priority(self, block: int) -> float:
        """The lowest goes first; among equals the one whose stamp is the oldest."""

    def enter(self, block: int) -> None:
        """Put an idle leaf into the heap."""
        blocks = self.blocks
        blocks.entries += 1
        blocks.entry[block] = blocks.entries
        heappush(self._heap, (self.priority(block), blocks.stamp[block], blocks.entries, block))
        if len(self._heap) > self._most:
            self._heap[:] = [entry for entry in self._heap if self._stands(entry)]
            heapify(self._heap)

    def _first(self) -> int | None:
        heap = self._heap
        while heap:
            first = heappop(heap)
            if self._stands(first):
                self.chosen(first[3], first[0])
                return first[3]
        return None

    def _stands(self, entry: tuple[float, int, int, int]) -> bool:
        """Whether an entry is its block's newest, and the block still an idle leaf."""
        block, blocks = entry[3], self.blocks
        newest = blocks.entry[block] == entry[2]
        return newest and bool(blocks.idle[block]) and not blocks.children[block]

    def chosen(self, block: int, priority: float) -> None:
        """A victim leaves with this priority."""
