"""The registry as the gateway reads it: a cheap look at whether it changed, and versions."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from pathlib import Path

from prefixctl.config import Config
from prefixctl.errors import PrefixctlError, RegistryError
from prefixctl.gateway.groups import Groups
from prefixctl.gateway.prefix import Prefix, Reference
from prefixctl.gateway.refusal import Reason, RefusedError
from prefixctl.ids import PromptName
from prefixctl.registry.publish import Published, read_release
from prefixctl.registry.store import open_store
from prefixctl.registry.store.base import Alias, Store
from prefixctl.yamlfile import did_you_mean

_COUNTER_OFFSET, _COUNTER_BYTES = 24, 4
"""SQLite's file change counter: it goes up with every transaction that writes."""


_MOST_HINTS = 100
"""Beyond so many names a client is told none: to compare them takes as long as many requests."""
_LONG_SECONDS = 1.0
"""A failure that took longer was a wait for somebody's lock, and the next one would be as well."""


class RegistrySource:
    """A `prefixctl.gateway.live.Source` over the SQLite registry."""

    def __init__(self, config: Config, target: str) -> None:
        """See that the registry can be read.

        Args:
            config: The configuration.
            target: The name of the target that this server is.

        Raises:
            RegistryError: If there is none, or it is damaged.
            UnreachableError: If it cannot be read.
        """
        self._config = config
        self._target = target
        self._groups = Groups(config.tenancy.groups)
        self._settings = config.target(target)
        self._store: Store | None = None
        self._inode: int | None = None
        self._locked: tuple[Hashable, float] | None = None
        store = open_store(config)
        store.names()
        store.close()

    def stamp(self) -> Hashable:
        """Identity and change counter of the file; None if it is gone."""
        try:
            file = os.open(self._config.registry_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(file)
            counter = os.pread(file, _COUNTER_BYTES, _COUNTER_OFFSET)
        except OSError:
            return None
        finally:
            os.close(file)
        return status.st_ino, status.st_mtime_ns, status.st_size, counter

    def load(self, reference: Reference) -> Prefix:
        """See `Source.load`. Always called in the same thread, which owns the connection.

        Where the registry is locked one call waits for it, and those behind it are refused at
        once: each would wait as long, one after the other.
        """
        began = time.monotonic()
        if self._locked is not None:
            stamp, ended = self._locked
            if began - ended < _LONG_SECONDS and stamp == self.stamp():
                raise _unavailable()
            self._locked = None
        try:
            published = self._read(self._opened(), reference)
        except PrefixctlError as exc:
            self._drop()
            ended = time.monotonic()
            if ended - began > _LONG_SECONDS:
                self._locked = self.stamp(), ended
            raise _unavailable() from exc
        record = published.entry.targets.get(self._target)
        shared = record.shared_tokens if record is not None and record.governed else None
        return Prefix(
            prompt=published.prompt,
            version=published.entry.version,
            id=published.entry.id,
            shared_tokens=shared,
            block_tokens=self._settings.block_size,
            deployment=self._settings.parameters,
        )

    def _read(self, store: Store, reference: Reference) -> Published:
        name = PromptName(reference.name)
        kept = {stored.version for stored in store.state(name).versions}
        if not kept:
            names = self._usable(store)
            hint = did_you_mean(name, names) if len(names) <= _MOST_HINTS else None
            raise RefusedError(
                404,
                Reason.PREFIX_UNKNOWN,
                f"no prefix '{name}' is published" + (f" ({hint})" if hint else ""),
                param="prefix_key",
            )
        if reference.version is not None and reference.version not in kept:
            raise RefusedError(
                409,
                Reason.PREFIX_VERSION,
                f"version {reference.version} of '{name}' is not kept: "
                f"{', '.join(map(str, sorted(kept)))}",
                param="prefix_key",
            )
        ref = Alias.LIVE if reference.version is None else reference.version
        return read_release(store.load(name, ref))

    def _usable(self, store: Store) -> list[str]:
        """The names that may be told to anybody: those that no group keeps to itself."""
        return [name for name in store.names() if self._groups.may_use(None, name)]

    def _opened(self) -> Store:
        inode = _inode(self._config.registry_path)
        if self._store is None or inode != self._inode:
            self._drop()
            self._store, self._inode = open_store(self._config), inode
        return self._store

    def _drop(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _unavailable() -> RefusedError:
    return RefusedError(
        503, Reason.UNAVAILABLE, "the registry of prefixes cannot be read at the moment"
    )


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError as exc:
        raise RegistryError("the registry is gone", path=str(path)) from exc
