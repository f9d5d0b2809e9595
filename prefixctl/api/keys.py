"""The tenants' API keys: add, list, revoke. A running gateway sees a change at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefixctl.config import Config
from prefixctl.errors import ConfigError
from prefixctl.gateway.keyfile import add_key, read_keys, revoke_keys
from prefixctl.gateway.keys import StoredKey


def add_tenant_key(config: Config, tenant: str, *, note: str = "") -> str:
    """A new key of a tenant: see `prefixctl.gateway.keyfile.add_key`."""
    return add_key(_file(config), tenant, note)


def list_tenant_keys(config: Config) -> list[StoredKey]:
    """The keys that are known, without themselves. Errors as in `read_keys`."""
    return read_keys(_file(config))


def revoke_tenant_keys(config: Config, ids: Sequence[str]) -> list[StoredKey]:
    """The keys that were revoked: see `prefixctl.gateway.keyfile.revoke_keys`."""
    return revoke_keys(_file(config), ids)


def _file(config: Config) -> Path:
    if config.gateway.keys_file is None:
        raise ConfigError(
            "no file for API keys", path=config.path, hint="set gateway.keys_file, and ignore the "
            "file in git"
        )  # fmt: skip
    return config.root / config.gateway.keys_file
