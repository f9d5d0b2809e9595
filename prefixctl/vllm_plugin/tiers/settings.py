"""What the tiers are told, as one JSON object in the connector's extra configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixctl.core.tiering import EXTRA_NAME, TierSettings


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
