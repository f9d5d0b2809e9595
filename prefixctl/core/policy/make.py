"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prefixctl.core.policy.arc import ArcPolicy, S3FifoPolicy
from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.classic import AgedPolicy, FifoPolicy, LfuPolicy, LruPolicy
from prefixctl.core.policy.cost_aware import CostAwarePolicy
from prefixctl.core.policy.leaves import LeafPolicy
from prefixctl.core.policy.lru_freq import LruFreqPolicy
from prefixctl.core.policy.optimum import MinPolicy

COST_DOUBLES_AT_TOKENS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKind:
    """One policy as the commands offer it.

    Attributes:
        name: How it is asked for.
        summary: What it is, in one line.
        make: Makes one for a pool; the number is the cost that one block of depth adds.
        governs: Whether it can run in an engine; the others are for comparison.
        stepwise: A plain replay makes room for one block at a time, not for a request.
        overflows: A plain replay lets a request in whole and asks afterwards what leaves, so the
            request's own tail may.
    """

    name: str
    summary: str
    make: Callable[[Blocks, float], LeafPolicy]
    governs: bool = False
    stepwise: bool = False
    overflows: bool = False


POLICIES: dict[str, PolicyKind] = {
    kind.name: kind
    for kind in (
        PolicyKind(
            name="lru",
            summary="least recently used, as in vLLM",
            make=lambda blocks, _: LruPolicy(blocks),
            governs=True,
        ),
        PolicyKind(
            name="lru_freq",
            summary="learned chance of reuse by frequency, divided by age",
            make=lambda blocks, _: LruFreqPolicy(blocks),
            governs=True,
        ),
        PolicyKind(
            name="cost_aware",
            summary="learned chance of reuse soon, times the prefill cost saved",
            make=lambda blocks, cost: CostAwarePolicy(blocks, depth_cost=cost),
            governs=True,
        ),
        PolicyKind(
            name="fifo",
            summary="first in, first out",
            make=lambda blocks, _: FifoPolicy(blocks),
        ),
        PolicyKind(
            name="lfu",
            summary="least frequently used, without ageing",
            make=lambda blocks, _: LfuPolicy(blocks),
            overflows=True,
        ),
        PolicyKind(
            name="lfuda",
            summary="least frequently used with dynamic ageing",
            make=lambda blocks, _: AgedPolicy(blocks),
        ),
        PolicyKind(
            name="gdsf",
            summary="greedy dual: frequency times a cost by depth, with ageing",
            make=lambda blocks, cost: AgedPolicy(blocks, depth_cost=cost),
        ),
        PolicyKind(
            name="arc",
            summary="adaptive replacement cache",
            make=lambda blocks, _: ArcPolicy(blocks),
            overflows=True,
        ),
        PolicyKind(
            name="s3fifo",
            summary="a small queue before the main one",
            make=lambda blocks, _: S3FifoPolicy(blocks),
            stepwise=True,
        ),
        PolicyKind(
            name="min",
            summary="the offline optimum",
            make=lambda blocks, _: MinPolicy(blocks),
            stepwise=True,
        ),
    )
}


def depth_cost(block_tokens: int, doubles_at_tokens: float = COST_DOUBLES_AT_TOKENS) -> float:
    """What one block of depth adds to the prefill cost of a block at the root.

    The multiplications with the weights cost the same for every token, attention costs in
    proportion to the tokens before; 2 x parameters against 4 x layers x width x position
    floating-point operations (Kaplan et al., 2020, appendix B).

    Args:
        block_tokens: The block size.
        doubles_at_tokens: The position where both are equal; from about 27,000 for 7 billion
            parameters to 70,000 for 70 billion.
    """
    return block_tokens / doubles_at_tokens
