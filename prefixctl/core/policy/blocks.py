"""What every policy must know of the blocks: who is whose parent, who is idle."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import nsmallest


class Blocks:
    """The cached blocks of one pool, as arrays over its slots.

    Eviction is prefix-closed: a block is found only through its parent, so only a leaf, a block
    without cached children, may go. `stamp` and `label` are at the disposal of the policy.

    Attributes:
        capacity: How many may stay cached; the other slots are room for a request on its way.
        born: A serial number of the content in the slot, 0 for none.
        children: How many cached blocks have this one as their parent.
        depth: Blocks before it in the prefix.
        entries: How many entries the orders over these blocks have made.
        entry: The number of the newest one of each block.
        idle: 1 for a cached block that nobody uses.
        key: The content.
    """

    __slots__ = (
        "born", "capacity", "children", "depth", "entries", "entry", "idle", "key", "label",
        "parent", "parent_born", "serial", "size", "stamp",
    )  # fmt: skip

    def __init__(self, size: int, capacity: int | None = None) -> None:
        self.size = size
        self.capacity = size if capacity is None else capacity
        self.serial = 0
        self.born = [0] * size
        self.parent: list[int | None] = [None] * size
        self.parent_born = [0] * size
        self.children = [0] * size
        self.depth = [0] * size
        self.idle = bytearray(size)
        self.key: list[Hashable] = [None] * size
        self.stamp = [0] * size
        self.label = [0] * size
        self.entry = [0] * size
        self.entries = 0

    def link(self, blocks: Sequence[int], keys: Sequence[Hashable], parent: int | None) -> None:
        """Enter a chain of blocks below a cached parent, in use."""
        born, parents, children = self.born, self.parent, self.children
        parent_born, depths, names = self.parent_born, self.depth, self.key
        serial = self.serial
        depth = 0 if parent is None else depths[parent] + 1
        for block, key in zip(blocks, keys, strict=True):
            serial += 1
            born[block] = serial
            names[block] = key
            children[block] = 0
            depths[block] = depth
            parents[block] = parent
            if parent is not None:
                parent_born[block] = born[parent]
                children[parent] += 1
            depth += 1
            parent = block
        self.serial = serial

    def adopt(self, block: int, parent: int) -> None:
        """Put a block that was entered as a root below its cached parent.

        Orders skip a parent that has children, so nothing else is to be told.
        """
        self.parent[block] = parent
        self.parent_born[block] = self.born[parent]
        self.children[parent] += 1

    def above(self, block: int) -> int | None:
        """The cached parent of a block, None for a root and an orphan."""
        parent = self.parent[block]
        # A parent that was emptied before its child may hold other content by now.
        if parent is None or self.born[parent] != self.parent_born[block]:
            return None
        return parent

    def unlink(self, block: int) -> int | None:
        """Forget a block; children that are left become orphans.

        Returns:
            The parent, if that is now an idle leaf.
        """
        self.idle[block] = 0
        self.born[block] = 0
        parent = self.above(block)
        if parent is None:
            return None
        children = self.children[parent] - 1
        self.children[parent] = children
        return parent if not children and self.idle[parent] else None

    def strays(self, count: int) -> list[int]:
        """The idle blocks of the oldest contents, leaf or not: a last resort, O(size).

        Only duplicates of one content can leave idle blocks without an idle leaf among them.
        """
        idle = [block for block in range(self.size) if self.idle[block]]
        return nsmallest(count, idle, key=self.born.__getitem__)
