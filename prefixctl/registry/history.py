"""What became of a prompt: its versions, where they were served, how stable its prefix is."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from prefixctl.config import Config
from prefixctl.core.changes import Change, compare
from prefixctl.core.serving import Serving
from prefixctl.core.versions import PrefixVersion
from prefixctl.ids import PromptName
from prefixctl.registry.store import open_store
from prefixctl.registry.store.base import Move, PromptState, Stored
from prefixctl.registry.worktree import find_prompt, unknown_prompt
from prefixctl.sources.lockfile import load_lock


class Standing(StrEnum):
    """What the registry has of a version."""

    LIVE = "live"
    PREVIOUS = "previous"
    RETIRED = "retired"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One version, with what changed against the one before it (None for the first)."""

    entry: PrefixVersion
    change: Change | None
    standing: Standing
    stored: Stored | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """How many releases after the first one changed the prefix on a target."""

    target: str
    releases: int
    changed: int

    @property
    def share(self) -> float:
        """Changed releases / releases, 0 without any."""
        return self.changed / self.releases if self.releases else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A prompt's versions, oldest first, and the moves of its live alias."""

    name: PromptName
    versions: tuple[HistoryEntry, ...]
    stability: tuple[Stability, ...]
    moves: tuple[Move, ...]


def history(config: Config, name: str) -> History:
    """The versions of a prompt. Works without a registry.

    Raises:
        UsageError: If neither the lock nor the work tree has that prompt.
        LockError: If the lock cannot be used.
        RegistryError, UnreachableError: If there is a registry and it cannot be used.
    """
    lock = load_lock(config.lock_path)
    known = PromptName(name)
    entries = lock.prompts.get(known, ())
    if not entries and find_prompt(config, name) is None:
        raise unknown_prompt(name, list(lock.prompts))
    state = _state(config, known)
    stored = {v.version: v for v in state.versions}
    changes: list[Change | None] = [None]
    changes += [compare(a.content, a.targets, b.content, b.targets) for a, b in pairwise(entries)]
    return History(
        name=known,
        versions=tuple(
            HistoryEntry(
                entry=entry,
                change=change,
                standing=_standing(entry.version, state, stored),
                stored=stored.get(entry.version),
            )
            for entry, change in zip(entries, changes, strict=False)
        ),
        stability=_stability(entries),
        moves=state.moves,
    )


def _state(config: Config, name: PromptName) -> PromptState:
    if not config.registry_path.exists():
        return PromptState(name=name, serving=Serving(), versions=())
    with closing(open_store(config)) as store:
        return store.state(name)


def _standing(version: int, state: PromptState, stored: dict[int, Stored]) -> Standing:
    if version not in stored:
        return Standing.ABSENT
    if version == state.serving.live:
        return Standing.LIVE
    if version == state.serving.previous:
        return Standing.PREVIOUS
    return Standing.RETIRED


def _stability(entries: tuple[PrefixVersion, ...]) -> tuple[Stability, ...]:
    """By target: releases in which its key differs from the release before that named it."""
    keys: dict[str, list[str]] = {}
    for entry in entries:
        for target, record in entry.targets.items():
            keys.setdefault(target, []).append(record.key)
    return tuple(
        Stability(
            target=target, releases=len(own) - 1, changed=sum(a != b for a, b in pairwise(own))
        )
        for target, own in sorted(keys.items())
    )
