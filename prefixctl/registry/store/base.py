"""What a registry keeps, and the operations that every store offers.

A store keeps immutable versions (a record and the bytes of all files), which of them is live,
and every move of that alias. Each operation happens as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from prefixctl.core.prompt import canonical_json, digest_of
from prefixctl.core.serving import Serving
from prefixctl.errors import RegistryError
from prefixctl.ids import Digest, PromptName


class Alias(StrEnum):
    """A name for the version that plays a part."""

    LIVE = "live"
    PREVIOUS = "previous"


class Action(StrEnum):
    """Why the live alias moved."""

    PUBLISH = "publish"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """When (UTC) and by whom an alias is moved."""

    at: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version with its bytes.

    Attributes:
        name: The prompt.
        version: Its number.
        id: The id of its lock entry: what makes two versions of one number the same.
        record: The lock entry, encoded; opaque to a store.
        files: Relative path to bytes.
    """

    name: PromptName
    version: int
    id: Digest
    record: bytes = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)

    def seal(self) -> Digest:
        """A digest over the name, the number, the id, the record and the bytes of every file."""
        files = sorted((path, digest_of(data)) for path, data in self.files.items())
        words = [self.name, self.version, self.id, digest_of(self.record), files]
        return digest_of(canonical_json(words))

    def check(self, seal: str) -> None:
        """Refuse bytes that are not those that were published.

        Raises:
            RegistryError: If the seal of the bytes is another one.
        """
        try:
            sound = self.seal() == seal
        except (TypeError, UnicodeEncodeError):  # a damaged row can hold values of any type
            sound = False
        if not sound:
            raise RegistryError(
                f"the registry's copy of {self.name}@{self.version} is damaged and not served",
                hint="publish another version, or restore the registry from a backup",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A version that the store holds. `retired_at` is None while it is live or previous."""

    version: int
    published_at: datetime
    retired_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One move of the live alias, oldest first."""

    action: Action
    before: int | None
    after: int
    at: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptState:
    """All that a store says of one prompt, without the bytes."""

    name: PromptName
    serving: Serving
    versions: tuple[Stored, ...]
    moves: tuple[Move, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The aliases of a prompt before and after a publish or rollback."""

    before: Serving
    after: Serving


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRef:
    """A version by its prompt and number."""

    name: PromptName
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a collection removes.

    Attributes:
        versions: By prompt, oldest first.
        blobs: Files' bytes that no version needs any more.
        freed_bytes: Their size.
    """

    versions: tuple[VersionRef, ...]
    blobs: int
    freed_bytes: int


class Store(Protocol):
    """Where versions are published; see ``tests/contract/test_store.py`` for what holds."""

    def publish(self, release: Release, stamp: Stamp) -> Moved:
        """Keep a version, unless it is there, and make it live.

        Raises:
            RegistryError: If it is there under another id: versions are immutable.
            UnreachableError: If the store cannot be written.
        """

    def rollback(self, name: PromptName, to: int | None, stamp: Stamp) -> Moved:
        """Make an earlier version live: the previous one, or a given one that is kept.

        Raises:
            RegistryError: If there is none.
        """

    def load(self, name: PromptName, ref: int | Alias) -> Release:
        """A version with its bytes, all from one moment, checked against their seal.

        Raises:
            RegistryError: If there is none, or its bytes are damaged.
        """

    def state(self, name: PromptName) -> PromptState:
        """What is kept of one prompt; empty for an unknown one."""

    def names(self) -> list[PromptName]:
        """The prompts that the store knows, sorted."""

    def collect(self, now: datetime, retention: timedelta, *, dry_run: bool = False) -> Collected:
        """Remove versions that have been retired for the retention time; never live, previous."""

    def close(self) -> None:
        """Let go of the connection."""
