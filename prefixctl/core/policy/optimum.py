"""The offline optimum: what no policy without knowledge of the future can beat."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heappop

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.leaves import HeapPolicy

NEVER = 1 << 62


class MinPolicy(HeapPolicy):
    """Evicts the leaf whose next use is farthest away (Belady, 1966), prefix-closed.

    It has to be told the future, request by request; see `Foreseeing`. Among leaves that are
    never used again the least recent goes first.
    """

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks)
        self._next_uses: Sequence[int] = ()
        self._seen = 0

    def foresee(self, keys: Sequence[Hashable], next_uses: Sequence[int]) -> None:  # noqa: ARG002
        """See `Foreseeing.foresee`."""
        self._next_uses = next_uses
        self._seen = 0

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """See `EvictionPolicy.admit`."""
        super().admit(blocks, keys, parent, owner)
        self._advance(blocks)

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """See `EvictionPolicy.hold`."""
        super().hold(blocks)
        if hit:
            self._advance(blocks)

    def _advance(self, blocks: Sequence[int]) -> None:
        self._tick += 1
        stamps, nexts, uses = self.blocks.stamp, self.blocks.label, self._next_uses
        for position, block in enumerate(blocks, self._seen):
            # Blocks behind the prompt hold generated text, which no request asks for.
            nexts[block] = uses[position] if position < len(uses) else NEVER
            stamps[block] = self._tick
        self._seen += len(blocks)

    def declines(self) -> bool:
        """Whether the next new block is better not cached: everything else is used earlier."""
        heap = self._heap
        while heap and not self._stands(heap[0]):
            heappop(heap)
        uses, position = self._next_uses, self._seen
        incoming = uses[position] if position < len(uses) else NEVER
        return not heap or -heap[0][0] <= incoming

    def priority(self, block: int) -> float:
        """The farther the next use, the lower."""
        return -self.blocks.label[block]
