"""Shares: one tenant's idle blocks cannot push out another's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.leaves import LeafPolicy

SPARE_ENTRIES = 1024


class Shared:
    """One order for each owner over the same blocks; who holds most for its share gives first.

    That is max-min fairness: an owner below its share loses nothing as long as another one is
    above. Owners that hold little lend what they do not use. Owners stand in a heap by what they
    hold; an entry that is no longer true is skipped, so it is O(log owners) for each change.
    """

    def __init__(
        self,
        blocks: Blocks,
        make: Callable[[Blocks], LeafPolicy],
        weights: Mapping[int, float] | None = None,
    ) -> None:
        """Start without owners.

        Args:
            blocks: The arrays.
            make: Makes the order of one owner.
            weights: The size of an owner's share against the others'; 1 if not named.
        """
        self._blocks = blocks
        self._make = make
        self._weights = dict(weights or {})
        self._orders: dict[int, LeafPolicy] = {}
        self._idle: dict[int, int] = {}
        self._cached: Counter[int] = Counter()
        self._owner = [0] * blocks.size
        self._heap: list[tuple[float, int]] = []

    def idle_blocks(self) -> dict[int, int]:
        """The idle cached blocks of each owner."""
        return dict(self._idle)

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """See `EvictionPolicy.admit`."""
        for block in blocks:
            self._owner[block] = owner
        self._order(owner).admit(blocks, keys, parent, owner)
        self._cached[owner] += len(blocks)

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """See `EvictionPolicy.hold`."""
        idle = self._blocks.idle
        for owner, run in self._runs(blocks):
            self._change(owner, -sum(idle[block] for block in run))
            self._orders[owner].hold(run, hit=hit)

    def free(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.free`."""
        for owner, run in self._runs(blocks):
            self._change(owner, len(run))
            self._orders[owner].free(run)

    def evict(self, count: int) -> list[int]:
        """See `EvictionPolicy.evict`."""
        victims: list[int] = []
        # An owner may have idle blocks that all carry others' children.
        covered: list[int] = []
        while len(victims) < count:
            owner = self._richest()
            if owner is None:
                break
            wanted = min(count - len(victims), self._above_the_next(owner))
            given = self._orders[owner].evict(wanted)
            victims += given
            if given:
                self._return(covered)
                covered = []
            if len(given) < wanted:
                self._idle[owner] -= len(given)
                covered.append(owner)
            else:
                self._change(owner, -len(given))
            if self._lose(owner, len(given)):
                covered = [each for each in covered if each != owner]
        self._return(covered)
        return victims if len(victims) == count else victims + self._strays(count - len(victims))

    def drop(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.drop`."""
        idle = self._blocks.idle
        for owner, run in self._runs(blocks):
            self._change(owner, -sum(idle[block] for block in run))
            self._orders[owner].drop(run)
            self._lose(owner, len(run))

    def enter(self, block: int) -> None:
        """Put an idle leaf into its owner's order."""
        self._orders[self._owner[block]].enter(block)

    def _lose(self, owner: int, blocks: int) -> bool:
        """An owner has fewer cached blocks; without any it is forgotten, which is returned."""
        self._cached[owner] -= blocks
        if self._cached[owner]:
            return False
        del self._cached[owner], self._orders[owner], self._idle[owner]
        return True

    def _level(self, owner: int) -> float:
        return self._idle[owner] / self._weights.get(owner, 1.0)

    def _change(self, owner: int, blocks: int) -> None:
        """An owner has more or fewer idle blocks, and a new place in the heap."""
        self._idle[owner] += blocks
        if not self._idle[owner]:
            return
        heappush(self._heap, (-self._level(owner), -owner))
        if len(self._heap) > 2 * len(self._idle) + SPARE_ENTRIES:
            self._heap = [(-self._level(each), -each) for each, idle in self._idle.items() if idle]
            heapify(self._heap)

    def _return(self, owners: Sequence[int]) -> None:
        for owner in owners:
            self._change(owner, 0)

    def _first(self) -> int | None:
        """Who stands first in the heap; what is no longer true is removed."""
        heap = self._heap
        while heap:
            level, owner = -heap[0][0], -heap[0][1]
            if self._idle.get(owner) and level == self._level(owner):
                return owner
            heappop(heap)
        return None

    def _richest(self) -> int | None:
        """Take who holds most for its share out of the heap; the highest number among equals."""
        owner = self._first()
        while owner is not None and self._first() == owner:
            heappop(self._heap)
        return owner

    def _above_the_next(self, owner: int) -> int:
        """Blocks that an owner, out of the heap, can give until the next one holds as much."""
        following = self._first()
        if following is None:
            return self._idle[owner]
        above = self._level(owner) - self._level(following)
        return max(int(above * self._weights.get(owner, 1.0)), 1)

    def _strays(self, count: int) -> list[int]:
        strays = self._blocks.strays(count)
        for block in strays:
            self.drop([block])
        return strays

    def _runs(self, blocks: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        for owner, run in groupby(blocks, self._owner.__getitem__):
            yield owner, list(run)

    def _order(self, owner: int) -> LeafPolicy:
        order = self._orders.get(owner)
        if order is None:
            order = self._orders[owner] = self._make(self._blocks)
            order.join(self.enter)
            self._idle[owner] = 0
        return order
