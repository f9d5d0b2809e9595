"""Where published versions live."""

from __future__ import annotations

from prefixctl.config import Config
from prefixctl.registry.store.base import Store
from prefixctl.registry.store.sqlite import SqliteStore


def open_store(config: Config, *, create: bool = False) -> Store:
    """The registry of a configuration; close it after use.

    Args:
        config: The configuration.
        create: Make it if it is missing.

    Raises:
        RegistryError: If it is missing or no registry.
        UnreachableError: If it cannot be opened.
    """
    return SqliteStore(config.registry_path, create=create)
