"""What a block is expected to save: chance of reuse soon x the cost of computing it again."""

from __future__ import annotations

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.reuse import ReusePolicy

HORIZON = 0.3
BINS = 128
EVEN_BINS = 4
FIRST_TABLES = 256
KEPT_AT_AGEING = 0.9


class CostAwarePolicy(ReusePolicy):
    """Evicts the block whose room earns least.

    For a block of class c that has waited for age a without being asked for, with P the share
    of c that is reused and S the share of reuses that come later than an age, the chance to be
    asked for within the next h is, by Bayes, P (S(a) - S(a+h)) / (P S(a) + 1 - P). Both are
    learned from the traffic; reuse times of one kind of request are that regular (KVCache Cache
    in the Wild, ATC 2025; compare hit density, Beckmann et al., NSDI 2018). It is multiplied by
    the prefill cost of the block, which grows with its depth because attention does; all blocks
    of a pool have the same bytes.

    The kind of a block is where it was computed: at the root, as a branch beside other
    children, or as the continuation of a leaf, such as a conversation's next turn.
    """

    levels = 6
    kinds = 3
    ghosts_per_block = 3

    def __init__(self, blocks: Blocks, *, depth_cost: float = 0.0) -> None:
        """Start without knowledge.

        Args:
            blocks: The arrays.
            depth_cost: What one block of depth adds to the prefill cost of 1 of a block at the
                root: the block size divided by the context length at which attention costs as
                much as all the rest of a token's prefill.
        """
        super().__init__(blocks)
        self._depth_cost = depth_cost
        self._horizon = max(int(HORIZON * blocks.size), 1)
        self._ages = [0.1] * BINS
        self._seen = 0
        self._next_table = FIRST_TABLES
        self._later = [0.0] * (BINS + 1)
        self._tabulate()

    def kind(self, parent: int | None) -> int:
        """Root, branch or continuation."""
        if parent is None:
            return 0
        label = self.blocks.label[parent]
        if label % self.levels == 0:
            # Never asked for again: computed by this very request, in an earlier step.
            return label // self.levels
        return 1 if self.blocks.children[parent] else 2

    def learn(self, label: int, age: int, blocks: int) -> None:
        """See `ReusePolicy.learn`."""
        super().learn(label, age, blocks)
        self._ages[_bin(age)] += blocks
        self._seen += blocks
        if self._seen >= self._next_table:
            self._next_table *= 2
            self._tabulate()

    def age_statistics(self) -> None:
        """See `ReusePolicy.age_statistics`."""
        super().age_statistics()
        self._ages = [KEPT_AT_AGEING * count for count in self._ages]
        self._tabulate()

    def worth(self, label: int, age: int, block: int) -> float:
        """Expected saving within the horizon, in prefills of a block at the root."""
        chance = self.chance(label)
        waiting = self._later_than(age)
        soon = waiting - self._later_than(age + self._horizon)
        # Beyond all ages seen, the older one goes first.
        soon += 1e-6 / (1 + age)
        reused = chance * soon / (chance * waiting + 1 - chance)
        return reused * (1 + self._depth_cost * self.blocks.depth[block])

    def _tabulate(self) -> None:
        total = sum(self._ages) + 1
        left = total
        for position, count in enumerate(self._ages):
            self._later[position] = left / total
            left -= count
        self._later[BINS] = left / total

    def _later_than(self, age: int) -> float:
        """The share of reuses at a higher age, linear inside a bin."""
        position = _bin(age)
        if age < EVEN_BINS:
            return self._later[position]
        bits = age.bit_length()
        width = 1 << (bits - 2)
        start = (1 << (bits - 1)) + (width if position & 1 else 0)
        here, after = self._later[position], self._later[position + 1]
        return here + (after - here) * (age - start) / width


def _bin(age: int) -> int:
    """Two bins for each power of two; ages below 4 have their own."""
    if age < EVEN_BINS:
        return age
    bits = age.bit_length()
    return min(2 * bits + ((age >> (bits - 2)) & 1), BINS - 1)
