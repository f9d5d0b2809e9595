"""The frame of the learning policies: blocks in classes, and how each class fares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.ghosts import Ghosts
from prefixctl.core.policy.leaves import SPARE_ENTRIES, LeafPolicy
from prefixctl.core.policy.rival import Rival

KEPT_AT_AGEING = 0.9
SHORTEST_PERIOD = 4096
PRIOR_BLOCKS = 30.0


class ReusePolicy(LeafPolicy):
    """Leaves in classes by how often, and in which situation, their content was asked for.

    A class learns what share of its blocks is asked for again, memory of evicted contents
    included, and forgets a tenth after every capacity's worth of blocks asked for. Inside a
    class the oldest leaf goes first; between classes `worth` decides. Age is counted in blocks
    computed since the last use, so it is short under a flood and long in quiet.

    A class is a number: kind x `levels` + times asked for - 1, the last level open above.
    """

    levels = 8
    kinds = 1
    ghosts_per_block = 2

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        classes = self.kinds * self.levels
        self._heaps: list[list[tuple[int, int, int]]] = [[] for _ in range(classes)]
        self._pushed = 0
        self._most = 2 * blocks.size + SPARE_ENTRIES
        self._ghosts = Ghosts(self.ghosts_per_block * blocks.size)
        self._rival = Rival(blocks.size)
        self._reused = [0.0] * classes
        self._lost = [0.0] * classes
        self._reused_at = [1.0] * self.levels
        self._lost_at = [1.0] * self.levels
        self._clock = 0
        self._asked = 0
        self._period = max(blocks.size, SHORTEST_PERIOD)
        self._next_ageing = self._period

    @abstractmethod
    def worth(self, label: int, age: int, block: int) -> float:
        """The lowest goes first.

        Args:
            label: The class.
            age: Blocks computed since the last use.
            block: The oldest leaf of the class.
        """

    def kind(self, parent: int | None) -> int:  # noqa: ARG002
        """The situation in which blocks below a parent are computed."""
        return 0

    def learn(self, label: int, age: int, blocks: int) -> None:  # noqa: ARG002
        """Blocks of a class were asked for again at an age."""
        self._reused[label] += blocks
        self._reused_at[label % self.levels] += blocks

    def chance(self, label: int) -> float:
        """The share of a class that is asked for again, drawn to that of its level if few.

        Evicted contents that come back count as reused. A level that is not known yet is even.
        """
        level = label % self.levels
        reused = self._reused_at[level]
        prior = reused / (reused + max(self._lost_at[level], 1.0))
        reused, lost = self._reused[label], max(self._lost[label], 0.0)
        return (reused + PRIOR_BLOCKS * prior) / (reused + lost + PRIOR_BLOCKS)

    def age_statistics(self) -> None:
        """Forget a part of what was learned, so that a change of traffic is learned."""
        for counts in (self._reused, self._lost, self._reused_at, self._lost_at):
            for label in range(len(counts)):
                counts[label] *= KEPT_AT_AGEING

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """See `EvictionPolicy.admit`."""
        first = self.kind(parent) * self.levels
        super().admit(blocks, keys, parent, owner)
        labels, stamps = self.blocks.label, self.blocks.stamp
        self._clock += len(blocks)
        clock, top, rival = self._clock, self.levels - 1, self._rival
        found_by_lru = 0
        for block, key in zip(blocks, keys, strict=True):
            note = self._ghosts.take(key)
            stamps[block] = clock
            if note is None:
                labels[block] = first
                continue
            label, last_use = note
            self.learn(label, clock - last_use, 1)
            self._lose(label, -1)
            labels[block] = first + min(label % self.levels + 1, top)
            if rival.holds(last_use):
                found_by_lru += 1
                rival.reuse(last_use, 1)
        rival.use(clock, len(blocks))
        self._score(len(blocks), 0, found_by_lru)

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """See `EvictionPolicy.hold`."""
        super().hold(blocks)
        if not hit:
            return
        labels, stamps, top = self.blocks.label, self.blocks.stamp, self.levels - 1
        found_by_lru = 0
        start, number = 0, len(blocks)
        # Blocks that were used together stand together: learn from runs of equal history.
        while start < number:
            label, stamp = labels[blocks[start]], stamps[blocks[start]]
            raised = label + (label % self.levels < top)
            end = start
            while end < number:
                block = blocks[end]
                if labels[block] != label or stamps[block] != stamp:
                    break
                labels[block] = raised
                end += 1
            self.learn(label, self._clock - stamp, end - start)
            if self._rival.holds(stamp):
                found_by_lru += end - start
            start = end
        self._score(number, number, found_by_lru)

    def free(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.free`."""
        stamps, rival, clock = self.blocks.stamp, self._rival, self._clock
        last, run = clock, 0
        for block in blocks:
            stamp = stamps[block]
            if stamp != last:
                rival.reuse(last, run)
                last, run = stamp, 0
            run += 1
            stamps[block] = clock
        rival.reuse(last, run)
        rival.use(clock, len(blocks))
        super().free(blocks)

    def enter(self, block: int) -> None:
        """Put an idle leaf into the order of its class."""
        blocks = self.blocks
        blocks.entries += 1
        blocks.entry[block] = blocks.entries
        heappush(self._heaps[blocks.label[block]], (blocks.stamp[block], blocks.entries, block))
        self._pushed += 1
        if self._pushed > self._most:
            self._pushed = 0
            for label, heap in enumerate(self._heaps):
                # In place: an eviction may be walking it.
                heap[:] = [entry for entry in heap if self._stands(entry, label)]
                heapify(heap)

    def _stands(self, entry: tuple[int, int, int], label: int) -> bool:
        """Whether an entry is its block's newest, and the block an idle leaf of the class."""
        block, blocks = entry[2], self.blocks
        return (
            blocks.entry[block] == entry[1]
            and bool(blocks.idle[block])
            and not blocks.children[block]
            and blocks.label[block] == label
        )

    def evict(self, count: int) -> list[int]:
        """See `EvictionPolicy.evict`."""
        victims: list[int] = []
        while len(victims) < count:
            label, limit = self._weakest()
            if label is None:
                break
            self._take(label, limit, count, victims)
        if len(victims) < count and self.alone:
            victims += super().evict(count - len(victims))
        return victims

    def _take(self, label: int, limit: float, count: int, victims: list[int]) -> None:
        """Evict from one class until another one is weaker."""
        blocks = self.blocks
        stamps, labels, heap = blocks.stamp, blocks.label, self._heaps[label]
        stamp: int | None = None
        while len(victims) < count:
            block = self._oldest(label)
            if block is None:
                return
            if stamp is not None and stamps[block] != stamp and self._order(label, block) > limit:
                return
            heappop(heap)
            stamp = stamps[block]
            self._ghosts.add(blocks.key[block], label, stamp)
            self._lose(label, 1)
            victims.append(block)
            parent = blocks.unlink(block)
            if parent is not None:
                self._uncovered(parent)
                if labels[parent] != label:
                    return

    def _weakest(self) -> tuple[int | None, float]:
        """The class that gives next, and the worth at which another one would."""
        weakest: int | None = None
        lowest = second = float("inf")
        for label, heap in enumerate(self._heaps):
            if not heap:
                continue
            block = self._oldest(label)
            if block is None:
                continue
            worth = self._order(label, block)
            if weakest is None or worth < lowest:
                weakest, lowest, second = label, worth, lowest
            elif worth < second:
                second = worth
        return weakest, second

    def _order(self, label: int, block: int) -> float:
        age = self._clock - self.blocks.stamp[block]
        return -float(age) if self._rival.leads else self.worth(label, age, block)

    def _oldest(self, label: int) -> int | None:
        heap = self._heaps[label]
        while heap:
            if self._stands(heap[0], label):
                return heap[0][2]
            heappop(heap)
        return None

    def _lose(self, label: int, blocks: int) -> None:
        self._lost[label] += blocks
        self._lost_at[label % self.levels] += blocks

    def _first(self) -> int | None:
        return None

    def _score(self, asked: int, found: int, found_by_lru: int) -> None:
        self._rival.score(asked, found, found_by_lru)
        self._asked += asked
        if self._asked >= self._next_ageing:
            self._next_ageing = self._asked + self._period
            self.age_statistics()
