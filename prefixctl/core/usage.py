"""The one definition of what a request got from the cache."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CacheState(StrEnum):
    """How much of its expected hit a request got."""

    FULL = "full"
    PARTIAL = "partial"
    MISS = "miss"
    TOO_SHORT = "too_short"
    UNREPORTED = "unreported"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """What the engine reported for one request.

    Attributes:
        prompt_tokens: All prompt tokens.
        cached_tokens: Prompt tokens taken from the cache; None if the engine did not say.
            Not reported is never zero.
        ttft_seconds: Time to the first token, if it was measured.
    """

    prompt_tokens: int
    cached_tokens: int | None
    ttft_seconds: float | None = None

    def state(self, expected_hit_tokens: int) -> CacheState:
        """The cache state against the expected hit of the governed prefix, in tokens."""
        if expected_hit_tokens == 0:
            return CacheState.TOO_SHORT
        if self.cached_tokens is None:
            return CacheState.UNREPORTED
        if self.cached_tokens == 0:
            return CacheState.MISS
        if self.cached_tokens >= expected_hit_tokens:
            return CacheState.FULL
        return CacheState.PARTIAL
