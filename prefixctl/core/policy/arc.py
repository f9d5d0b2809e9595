"""ARC and S3-FIFO over leaves, for comparison: two lists each and a memory of what left."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from heapq import heappop, heappush

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.ghosts import Ghosts
from prefixctl.core.policy.leaves import LeafPolicy

SMALL_SHARE = 0.1
MOST_COUNTED = 3
PROMOTED_AT = 2


class TwoListPolicy(LeafPolicy):
    """Cached blocks in two lists, each ordered by stamp; `Blocks.label` says in which."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        self._heaps: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        self._sizes = [0, 0]
        self._tick = 0

    def place(self, block: int, where: int) -> None:
        """Put a block at the young end of a list."""
        self._tick += 1
        self.blocks.stamp[block] = self._tick
        self.blocks.label[block] = where
        self._sizes[where] += 1

    def enter(self, block: int) -> None:
        """An idle leaf may leave from the list it is in."""
        where = self.blocks.label[block]
        heappush(self._heaps[where], (self.blocks.stamp[block], block))

    def oldest(self, where: int) -> int | None:
        """The oldest idle leaf of a list; it stays in the order."""
        heap, blocks = self._heaps[where], self.blocks
        while heap:
            stamp, block = heap[0]
            if (
                blocks.stamp[block] == stamp
                and blocks.label[block] == where
                and blocks.idle[block]
                and not blocks.children[block]
            ):
                return block
            heappop(heap)
        return None

    def _forget(self, block: int) -> None:
        self._sizes[self.blocks.label[block]] -= 1
        super()._forget(block)

    def drop(self, blocks: Sequence[int]) -> None:
        """See `EvictionPolicy.drop`."""
        for block in blocks:
            self._sizes[self.blocks.label[block]] -= 1
        super().drop(blocks)

    @abstractmethod
    def _first(self) -> int | None: ...


class ArcPolicy(TwoListPolicy):
    """Adaptive replacement (Megiddo and Modha, 2003).

    List 0 holds what was asked for once, list 1 what was asked for again; a block that comes
    back after it left shifts the target size of list 0, by whole blocks. Each memory holds as many
    keys as the cache has blocks. If the list that should give has no idle leaf, the other one does.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        self._ghosts = (Ghosts(blocks.capacity), Ghosts(blocks.capacity))
        self._target = 0
        self._keys: Sequence[Hashable] = ()
        self._adapted = 0
        self._seen = 0

    def foresee(self, keys: Sequence[Hashable], next_uses: Sequence[int]) -> None:  # noqa: ARG002
        """See `Foreseeing.foresee`: ARC adapts before room is made for what comes, not after."""
        self._keys = keys
        self._seen = 0
        self._adapted = 0

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """See `EvictionPolicy.admit`."""
        super().admit(blocks, keys, parent, owner)
        for block, key in zip(blocks, keys, strict=True):
            if self._seen >= self._adapted:
                self._adapt(key)
            self._seen += 1
            known = [ghosts.take(key) is not None for ghosts in self._ghosts]
            self.place(block, int(any(known)))

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """See `EvictionPolicy.hold`."""
        super().hold(blocks)
        if hit:
            self._seen += len(blocks)
            for block in blocks:
                self._sizes[self.blocks.label[block]] -= 1
                self.place(block, 1)

    def _adapt(self, key: Hashable) -> None:
        once, again = self._ghosts
        if key in once:
            self._target += max(1, len(again) // len(once))
        elif key in again:
            self._target -= max(1, len(once) // len(again))
        self._target = min(max(self._target, 0), self.blocks.capacity)

    def _first(self) -> int | None:
        if self._seen >= self._adapted and self._seen < len(self._keys):
            self._adapt(self._keys[self._seen])
            self._adapted = self._seen + 1
        where = 0 if self._sizes[0] and self._sizes[0] > self._target else 1
        block = self.oldest(where)
        return self.oldest(1 - where) if block is None else block

    def _forget(self, block: int) -> None:
        self._ghosts[self.blocks.label[block]].add(self.blocks.key[block])
        super()._forget(block)


class S3FifoPolicy(TwoListPolicy):
    """S3-FIFO (Yang et al., SOSP 2023): a small queue that new blocks must survive.

    List 0 is the small queue, a tenth of the cache; list 1 the main one, in which a block that
    was asked for goes round again.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        self._ghosts = Ghosts(int(blocks.capacity * (1 - SMALL_SHARE)))
        self._small = max(int(blocks.capacity * SMALL_SHARE), 1)
        self._counts = bytearray(blocks.size)

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """See `EvictionPolicy.admit`."""
        super().admit(blocks, keys, parent, owner)
        for block, key in zip(blocks, keys, strict=True):
            self._counts[block] = 0
            self.place(block, int(self._ghosts.take(key) is not None))

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """See `EvictionPolicy.hold`."""
        super().hold(blocks)
        if hit:
            for block in blocks:
                self._counts[block] = min(self._counts[block] + 1, MOST_COUNTED)

    def _first(self) -> int | None:
        while True:
            where = 0 if self._sizes[0] >= self._small else 1
            block = self.oldest(where)
            if block is None:
                where = 1 - where
                block = self.oldest(where)
            if block is None or self._counts[block] < (1 if where else PROMOTED_AT):
                return block
            self._counts[block] = 0 if where == 0 else self._counts[block] - 1
            self._sizes[where] -= 1
            self.place(block, 1)
            self.enter(block)

    def _forget(self, block: int) -> None:
        if self.blocks.label[block] == 0:
            self._ghosts.add(self.blocks.key[block])
        super()._forget(block)
