"""Frequency with ageing, recency and resistance to scans."""

from __future__ import annotations

from prefixctl.core.policy.reuse import ReusePolicy


class LruFreqPolicy(ReusePolicy):
    """Evicts the block with the least chance of reuse for its age.

    The chance is that of blocks that were asked for equally often, as learned from this very
    traffic; divided by the age it is a rate, as in hyperbolic caching (Blankstein et al., ATC
    2017), with a learned weight in place of the count. One-off blocks of a scan sink fast
    because their class is seldom reused; where all classes are reused alike it is LRU; a block
    that was popular once ages like any other.
    """

    def worth(self, label: int, age: int, block: int) -> float:  # noqa: ARG002
        """Chance of reuse for each block computed since the last use."""
        return self.chance(label) / (age + 1)
