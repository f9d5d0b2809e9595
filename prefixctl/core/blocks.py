"""Token spans, full KV blocks, tails and the expected hit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DEFAULT_BLOCK_SIZE = 16
"""vLLM's own on a GPU, in tokens."""


def cache_unit(block_sizes: Sequence[int]) -> int:
    """The number of tokens a hit is a multiple of.

    Args:
        block_sizes: The block size of every KV cache group of the model, in tokens. A model
            with one kind of attention has one; a hybrid model has several.

    Returns:
        Their least common multiple.

    Raises:
        ValueError: If there is none, or one is not positive.
    """
    if not block_sizes or min(block_sizes) < 1:
        raise ValueError(f"block sizes must be positive and at least one: {list(block_sizes)}")
    return math.lcm(*block_sizes)


def common_prefix_tokens(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of leading tokens that two requests share."""
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def expected_hit_tokens(
    shared_tokens: int, request_tokens: int, unit: int, *, speculative: bool = False
) -> int:
    """How many cached tokens a request can show once its shared prefix is resident.

    min(floor(S/u), floor((N-1)/u)) x u: a hit ends on a unit, and the last token of a request
    is always computed.

    Args:
        shared_tokens: S, the tokens that the request shares with the earlier one.
        request_tokens: N, all prompt tokens of the request.
        unit: u, see `cache_unit`.
        speculative: With speculative decoding a hit that would reach the end of the request
            (S = N) loses one more unit. What it costs with a tail behind is not modelled.

    Raises:
        ValueError: If S is not within 0..N or the unit is not positive.
    """
    if unit < 1 or not 0 <= shared_tokens <= request_tokens:
        raise ValueError(f"S={shared_tokens}, N={request_tokens}, u={unit} do not fit")
    if request_tokens == 0:
        return 0
    units = min(shared_tokens // unit, (request_tokens - 1) // unit)
    if speculative and shared_tokens == request_tokens:
        units = max(units - 1, 0)
    return units * unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the shared prefix of a request lies on the engine's cache units, in tokens."""

    shared_tokens: int
    request_tokens: int
    unit: int

    @property
    def full_blocks(self) -> int:
        """Whole units inside the shared prefix."""
        return self.shared_tokens // self.unit

    @property
    def tail_tokens(self) -> int:
        """Shared tokens behind the last whole unit: computed again for every request."""
        return self.shared_tokens % self.unit

    @property
    def expected_hit_tokens(self) -> int:
        """See `expected_hit_tokens`."""
        return expected_hit_tokens(self.shared_tokens, self.request_tokens, self.unit)

    def explain(self) -> str:
        """Why the expected hit is what it is, in words."""
        shared, unit = self.shared_tokens, self.unit
        if shared < unit:
            return (
                f"no hit: the {shared:,} shared tokens are fewer than one cache unit of "
                f"{unit:,} tokens"
            )
        if self.expected_hit_tokens == 0:
            return (
                f"no hit: the request has {self.request_tokens:,} tokens and its last token is "
                f"always computed, so no whole unit of {unit:,} tokens is left"
            )
        if self.expected_hit_tokens < self.full_blocks * unit:
            return (
                f"{self.expected_hit_tokens:,} of {shared:,} shared tokens: the request ends with "
                "the shared prefix and its last token is always computed"
            )
        return (
            f"{self.expected_hit_tokens:,} of {shared:,} shared tokens: {self.full_blocks:,} full "
            f"blocks of {unit:,}, {self.tail_tokens:,} tail tokens computed every time"
        )
