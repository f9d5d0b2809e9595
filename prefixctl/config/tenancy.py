"""Tenants: their groups and secret, and the gateway that tells whose a request is."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from prefixctl.config.fields import Name, OnOff, valid_name
from prefixctl.yamlfile import StrictModel

ANONYMOUS = "anonymous"
"""The tenant of requests that name none, where they are served."""
ALL_TENANTS = "*"


def _tenant(value: str) -> str:
    return value if value == ALL_TENANTS else valid_name(value)


class GroupConfig(StrictModel):
    """Tenants that share the public prefixes of some prompts."""

    tenants: tuple[Annotated[str, AfterValidator(_tenant)], ...] = Field(
        description="Its tenants; `*` stands for all that no other group names."
    )
    prompts: tuple[Name, ...] = Field(
        default=(), description="Prompts whose prefix is shared. Others may not use their keys."
    )


class TenancyConfig(StrictModel):
    """Where the tenancy secret lies; the secret itself never stands in this file."""

    secret_file: Path | None = Field(
        default=None, description="File with the tenancy secret (at least 16 bytes)."
    )
    secret_env: str = Field(
        default="PREFIXCTL_SECRET", description="Environment variable with the tenancy secret."
    )
    epoch: int = Field(default=0, ge=0, description="Number of the salt rotation period.")
    sharing: Annotated[Literal["off", "shadow", "on"], OnOff] = Field(
        default="off",
        description="Whether the tenants of a group share the public prefixes of its prompts; "
        "shadow only counts what would be shared. Needs the gateway.",
    )
    groups: dict[Name, GroupConfig] = Field(
        default_factory=dict,
        description="Share groups. A tenant that no group names is a group of its own.",
    )

    @model_validator(mode="after")
    def _one_group_each(self) -> Self:
        seen: dict[str, str] = {}
        for name, group in self.groups.items():
            for tenant in group.tenants:
                if tenant in seen:
                    raise ValueError(f"'{tenant}' is in two groups, {seen[tenant]} and {name}")
                seen[tenant] = name
        return self


class RateConfig(StrictModel):
    """How much a tenant may ask for; what is not given is not limited."""

    requests_per_minute: int | None = Field(
        default=None, gt=0, description="Requests in a minute, and in a burst."
    )
    prefill_tokens_per_minute: int | None = Field(
        default=None,
        gt=0,
        description="Prompt tokens that the cache does not hold, in a minute and in a burst.",
    )


class GatewayConfig(StrictModel):
    """The gateway: who a request is from, and what it may do."""

    enabled: bool = Field(
        default=False, description="`serve` puts the gateway in front of the server."
    )
    keys_file: Path | None = Field(
        default=None, description="File with the tenants' API keys, hashed: see `keys add`."
    )
    tenant_header: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9-]+$",
        description="Header in which a trusted proxy names the tenant.",
    )
    proxies: tuple[str, ...] = Field(
        default=(), description="Addresses or networks of the proxies that may set that header."
    )
    missing_tenant: Literal["refuse", "anonymous"] = Field(
        default="refuse",
        description="A request of nobody: refuse it, or serve it in the anonymous namespace.",
    )
    rates: RateConfig = Field(default=RateConfig(), description="Limits of every tenant.")
    tenant_rates: dict[Name, RateConfig] = Field(
        default_factory=dict, description="Limits of single tenants, instead."
    )
    max_body_mb: float = Field(default=32, gt=0, description="Largest body of a request.")
    body_seconds: float = Field(
        default=30, gt=0, description="How long a client may take to send its body."
    )
    metrics: Literal["open", "operator"] = Field(
        default="operator",
        description="Who may read `/metrics` from afar; this host always may. operator: whoever "
        "holds the admin token.",
    )
    label_tenants: int = Field(
        default=20, ge=0, description="Tenants with series of their own; the others are one."
    )
    drop_xargs: tuple[str, ...] = Field(
        default=(), description="Further `vllm_xargs` that clients must not set."
    )

    @field_validator("proxies")
    @classmethod
    def _addresses(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            ipaddress.ip_network(value, strict=False)
        return values

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if (self.tenant_header is None) != (not self.proxies):
            raise ValueError("tenant_header and proxies go together")
        return self
