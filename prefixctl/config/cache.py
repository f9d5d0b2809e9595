"""What is governed, how it is evicted and pinned, and the tiers below the device."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from prefixctl.config.fields import FiniteJson
from prefixctl.core.prompt import GOVERNED_KINDS, SectionKind
from prefixctl.yamlfile import StrictModel


class EvictConfig(StrictModel):
    """How idle cached blocks are evicted."""

    policy: Literal["lru", "lru_freq", "cost_aware"] = Field(
        default="lru", description="Which idle block goes first; lru is vLLM's own order."
    )
    ttl_hours: float | None = Field(
        default=24,
        gt=0,
        description="How long an idle block is found; null for ever.",
    )
    tenant_shares: bool = Field(
        default=False,
        description="Share idle blocks out, so that one tenant cannot push out the others.",
    )
    max_block_mb: int = Field(
        default=512, gt=0, description="KV megabytes of one section that are governed at most."
    )


class PinsConfig(StrictModel):
    """How much may be pinned."""

    share: float = Field(
        default=0.2,
        gt=0,
        le=1,
        description="The part of the device pool that may be pinned at most; a request of "
        "`max_model_len` always has room beside it.",
    )
    live: bool = Field(
        default=False,
        description="Servers pin the live versions by themselves, at start and after each publish; "
        "`/prefixctl/ready` says when they are resident.",
    )


class PrefixCacheConfig(StrictModel):
    """What is governed and how."""

    enabled: bool = Field(default=True, description="Off serves with prefix caching disabled.")
    block_by: Literal["token"] = Field(
        default="token", description="KV blocks are counted on token boundaries."
    )
    blocks: tuple[SectionKind, ...] = Field(
        default=GOVERNED_KINDS, description="Section types that may be part of a governed prefix."
    )
    versioned: bool = Field(
        default=True, description="Whether a changed prompt must be bumped before it is published."
    )
    min_tokens: int = Field(
        default=0, ge=0, description="Shared tokens below which a prompt is not governed."
    )
    evict: EvictConfig = Field(default=EvictConfig(), description="Eviction.")
    pins: PinsConfig = Field(default=PinsConfig(), description="Pinned prefixes.")
    fallback: Literal["partial", "refuse"] = Field(
        default="partial",
        description="A larger section: govern it up to the cap, or refuse it.",
    )

    @field_validator("blocks")
    @classmethod
    def _governable(cls, kinds: tuple[SectionKind, ...]) -> tuple[SectionKind, ...]:
        for kind in kinds:
            if kind not in GOVERNED_KINDS:
                known = ", ".join(k.value for k in GOVERNED_KINDS)
                raise ValueError(f"{kind.value} is never shared; choose from {known}")
        return kinds


MOST_GIB = 2**20
MOST_THREADS = 256


class NvmeConfig(StrictModel):
    """The tier on a local disk."""

    path: Path = Field(description="Its folder, on a local disk; several servers may share it.")
    gib: float = Field(gt=0, le=MOST_GIB, description="Disk space of the whole folder, in GiB.")
    policy: Literal["lru", "lru_freq", "cost_aware"] = Field(
        default="lru_freq", description="Which block goes first when the folder is full."
    )
    ttl_hours: float | None = Field(
        default=168, gt=0, description="How long a block lives that nobody uses; null for ever."
    )
    tenant_shares: bool = Field(
        default=False, description="Share the space out, so that no tenant pushes out another."
    )
    key_file: Path | None = Field(
        default=None,
        description="Keys of tenants and groups; blocks are encrypted if it is given.",
    )

    threads: int = Field(
        default=4,
        ge=1,
        le=MOST_THREADS,
        description="Threads that read, and as many that write.",
    )

    @field_validator("path")
    @classmethod
    def _a_folder_of_its_own(cls, path: Path) -> Path:
        if path in {Path(), Path("/")}:
            raise ValueError("the tier needs a folder of its own")
        return path


class TiersConfig(StrictModel):
    """Where cached blocks go that leave the device."""

    host_gib: float = Field(
        gt=0,
        le=MOST_GIB,
        description="Host memory for each data-parallel rank of a server, in GiB.",
    )
    policy: Literal["lru", "lru_freq", "cost_aware"] = Field(
        default="lru_freq", description="Which block leaves host memory first."
    )
    tenant_shares: bool = Field(default=False, description="Share host memory out between tenants.")
    nvme: NvmeConfig | None = Field(default=None, description="The tier below host memory.")
    shared: dict[str, FiniteJson] | None = Field(
        default=None,
        description="vLLM's own object store as one more tier: `{type: obj, ...}`, passed on.",
    )
