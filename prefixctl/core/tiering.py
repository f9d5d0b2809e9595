"""What an engine is told about its tiers, as one JSON object on its command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Self

EXTRA_NAME = "prefixctl"
"""Under this name the settings stand in the extra configuration of vLLM's connector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmeSettings:
    """The tier on a local disk.

    Attributes:
        path: Its folder.
        max_bytes: Disk space of the whole folder.
        policy: Name of an eviction policy that may govern.
        ttl_seconds: How long a block lives that nobody uses; None for ever.
        tenant_shares: Tenants share the space out evenly.
        pin_share: The part that may be pinned.
        key_file: Keys of the owners; blocks are encrypted if it is given.
        threads: Threads that read, and as many that write.
    """

    path: str
    max_bytes: int
    policy: str = "lru"
    ttl_seconds: float | None = 86_400.0
    tenant_shares: bool = False
    pin_share: float = 0.2
    key_file: str | None = None
    threads: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """All tiers below the device.

    Attributes:
        host_bytes: Host memory.
        policy: The host tier's eviction policy.
        ttl_seconds: How long an idle block is found in host memory; None for ever.
        tenant_shares: Tenants share host memory out evenly.
        pin_share: The part of host memory that may be pinned.
        nvme: The tier below, None for none.
        weights: What names the model's weights, where their files are not on this host.
        adapter: What names the adapter's weights.
        secret_file: The tenancy secret's file.
        secret_env: The environment variable that may hold it instead.
        model: Model and revision as salts name them; None if no target says so.
        epoch: Number of the salt rotation period.
        configuration: A digest of the configuration, so that commands find the blocks it has.
    """

    host_bytes: int
    policy: str = "lru"
    ttl_seconds: float | None = 86_400.0
    tenant_shares: bool = False
    pin_share: float = 0.2
    nvme: NvmeSettings | None = None
    weights: str | None = None
    adapter: str | None = None
    secret_file: str | None = None
    secret_env: str = field(default="PREFIXCTL_SECRET")
    model: str | None = None
    epoch: int = 0
    configuration: str = ""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Self:
        """The settings from plain values.

        Raises:
            ValueError: For a name that is not a setting: plugin and command line differ.
        """
        values = dict(data)
        nvme = values.pop("nvme", None)
        known = {f.name for f in fields(cls)}
        below = dict(nvme) if isinstance(nvme, Mapping) else {}
        unknown = (set(values) - known) | (set(below) - {f.name for f in fields(NvmeSettings)})
        if unknown:
            raise ValueError(f"unknown tier settings: {', '.join(sorted(unknown))}")
        made = NvmeSettings(**below) if below else None
        return cls(**values, nvme=made)  # type: ignore[arg-type]
