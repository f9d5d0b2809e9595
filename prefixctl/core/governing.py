"""What an engine is told about governing its cache, as one JSON object on its command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Self

DAY_SECONDS = 86_400.0
UTILITY = "prefixctl"
"""The method of the engine that the admin routes call."""


class Sharing(StrEnum):
    """Whether tenants of a group share governed public prefixes."""

    OFF = "off"
    SHADOW = "shadow"
    ON = "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """How one engine governs its device pool.

    Attributes:
        policy: Name of an eviction policy of `core.policy.make` that may govern.
        ttl_seconds: How long an idle block lives; None for ever.
        pin_share: The part of the pool that may be pinned at most.
        tenant_shares: Idle blocks are shared out between tenants.
        max_block_bytes: KV bytes of one section that are governed at most; None for no bound.
        refuse_above: Refuse a prefix with a larger section, instead of governing a part.
        min_tokens: Prefixes below it are not governed.
        sharing: Whether public prefixes are shared inside a group, or it is only counted what
            would be; either needs the tenancy secret in the engine's process.
    """

    policy: str = "lru"
    ttl_seconds: float | None = DAY_SECONDS
    pin_share: float = 0.2
    tenant_shares: bool = False
    max_block_bytes: int | None = None
    refuse_above: bool = False
    min_tokens: int = 0
    sharing: Sharing = Sharing.OFF

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Self:
        """The settings from plain values.

        Raises:
            ValueError: For a name that is not a setting: plugin and command line differ.
        """
        unknown = set(data) - {f.name for f in fields(cls)}
        if unknown:
            raise ValueError(f"unknown settings: {', '.join(sorted(unknown))}")
        sharing = Sharing(str(data.get("sharing", Sharing.OFF)))
        return cls(**{**data, "sharing": sharing})  # type: ignore[arg-type]


def pin_cap(pool_blocks: int, *, share: float, longest_request: int, watermark: int) -> int:
    """Blocks that may be pinned so that no request ever starves behind a pin.

    Args:
        pool_blocks: Blocks of the pool that can be used.
        share: The part that may be pinned at most.
        longest_request: Blocks that a request of the longest length needs.
        watermark: Blocks that the scheduler keeps free.
    """
    return max(min(int(share * pool_blocks), pool_blocks - longest_request - watermark), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedPart:
    """How much of a prefix is governed, and why not all of it.

    Attributes:
        tokens: Governed tokens, a multiple of the block size.
        reason: Why it is less than the full blocks of the prefix; empty if it is not.
        refused: Nothing is governed, because a section is too large.
    """

    tokens: int
    reason: str = ""
    refused: bool = False


def governed_part(
    tokens: int,
    section_ends: tuple[int, ...],
    *,
    block_tokens: int,
    token_bytes: int,
    settings: DeviceSettings,
) -> GovernedPart:
    """The part of a prefix that is governed (requirement K4).

    A prefix below the length threshold is cached as the engine always does. One with a section
    whose KV is larger than allowed is governed up to that cap, or not at all.

    Args:
        tokens: Tokens of the prefix.
        section_ends: Where each section ends, in tokens; empty if not known: one section.
        block_tokens: Tokens of a block.
        token_bytes: KV bytes of a token.
        settings: The bounds.
    """
    if tokens < settings.min_tokens:
        return GovernedPart(
            tokens=0,
            reason=f"{tokens:,} tokens are below the threshold of {settings.min_tokens:,}; it is "
            "cached as any other request",
        )
    full = tokens // block_tokens * block_tokens
    if settings.max_block_bytes is None:
        return GovernedPart(tokens=full)
    most = settings.max_block_bytes // max(token_bytes, 1)
    start = 0
    for end in section_ends or (tokens,):
        if end - start > most:
            size = (end - start) * token_bytes / 2**20
            allowed = settings.max_block_bytes / 2**20
            words = f"a section of {size:,.1f} MB of KV is above the {allowed:,.1f} MB allowed"
            if settings.refuse_above:
                return GovernedPart(tokens=0, reason=words, refused=True)
            cut = min(start + most, tokens) // block_tokens * block_tokens
            return GovernedPart(tokens=cut, reason=f"{words}; governed up to token {cut:,}")
        start = end
    return GovernedPart(tokens=full)
