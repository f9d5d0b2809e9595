"""What the tiers are told, as one JSON object in the connector's extra configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixctl.core.policy.make import depth_cost
from prefixctl.core.policy.tier import Rules
from prefixctl.core.tiering import EXTRA_NAME, NvmeSettings, TierSettings


def settings_of(extra_config: Mapping[str, Any]) -> TierSettings:
    """Ours from the connector's extra configuration.

    Raises:
        ValueError: If they are missing, or of another version of prefixctl.
    """
    data = extra_config.get(EXTRA_NAME)
    if not isinstance(data, Mapping):
        raise ValueError(  # noqa: TRY004 - vLLM's users see one kind
            f"kv_connector_extra_config names no '{EXTRA_NAME}': use prefixctl serve"
        )
    return TierSettings.from_json(data)


def rules_of(settings: TierSettings | NvmeSettings, config: Any) -> Rules:
    """How a tier chooses what to keep.

    Args:
        settings: Those of host memory, or of the disk.
        config: vLLM's offloading configuration, which says how many tokens a block of it has.
    """
    tokens = max(group.tokens_per_block for group in config.groups)
    return Rules(
        policy=settings.policy,
        depth_cost=depth_cost(tokens * config.cache.blocks_per_chunk),
        ttl_seconds=settings.ttl_seconds,
        shares=settings.tenant_shares,
        pinned_share=settings.pin_share,
    )
