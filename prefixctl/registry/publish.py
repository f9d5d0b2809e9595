"""Make a version live, go back to an earlier one, read versions, remove expired ones.

Going back moves an alias: the old bytes come from the registry and the work tree stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from prefixctl.config import Config
from prefixctl.core.changes import changed_parts, compare
from prefixctl.core.prompt import Prompt
from prefixctl.core.versions import Lock, PrefixVersion, content_of
from prefixctl.errors import DriftError, LockError, NothingToDoError, RegistryError, UsageError
from prefixctl.ids import PromptName
from prefixctl.prompts.load import parse_prompt
from prefixctl.registry.store import open_store
from prefixctl.registry.store.base import Alias, Collected, Moved, Release, Stamp, Store
from prefixctl.registry.worktree import find_prompt, target_records, unknown_prompt
from prefixctl.sources.lockentry import decode_entry, encode_entry
from prefixctl.sources.lockfile import load_lock
from prefixctl.yamlfile import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A prompt to publish: a version of it, or the newest of the lock."""

    name: str
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasChange:
    """Where the aliases of a prompt stand after a publish or a rollback.

    Attributes:
        name: The prompt.
        was_live: The version that was live before, None if none was.
        live: The version that is live now.
        previous: The version that the next rollback makes live, None if there is none.
    """

    name: PromptName
    was_live: int | None
    live: int
    previous: int | None

    @property
    def is_new(self) -> bool:
        """False if the version was live already."""
        return self.live != self.was_live


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A version from the registry: the text and the entry with its keys, from one moment."""

    entry: PrefixVersion
    prompt: Prompt


def publish(config: Config, wanted: Sequence[Wanted] = (), *, stamp: Stamp) -> list[AliasChange]:
    """Make versions live: the given ones, or the newest of every prompt of the lock.

    Their bytes come from the registry if they are there, else from the work tree, which must then
    be exactly what the lock's entry says, on every target. All versions are checked before the
    first alias moves; each prompt moves in a transaction of its own.

    Raises:
        DriftError: If the work tree is not that version.
        LockError: If the lock cannot be used or has no such version.
        NothingToDoError: If the lock is empty and nothing was named.
        RegistryError: If the version was published before with other content.
        UnreachableError: If the registry cannot be written.
    """
    twice = [w.name for w in wanted if sum(w.name == other.name for other in wanted) > 1]
    if twice:
        raise UsageError(f"'{twice[0]}' is named twice", hint="one version of a prompt can be live")
    lock = load_lock(config.lock_path)
    if not wanted and not lock.prompts:
        raise NothingToDoError("no version to publish", path=lock.path, hint="prefixctl bump")
    wanted = wanted or [Wanted(name=name) for name in sorted(lock.prompts)]
    with closing(open_store(config, create=True)) as store:
        releases = [_release(config, lock, store, w) for w in wanted]
        return [_change(r.name, store.publish(r, stamp)) for r in releases]


def rollback(config: Config, name: str, to: int | None = None, *, stamp: Stamp) -> AliasChange:
    """Make the previous version live again, or a given one, byte for byte.

    A second rollback goes one version further back. The way forward again is to publish.

    Raises:
        RegistryError: If there is no such version in the registry.
        UnreachableError: If the registry cannot be written.
    """
    with closing(open_store(config)) as store:
        known = known_name(store, name)
        return _change(known, store.rollback(known, to, stamp))


def gc(config: Config, now: datetime, *, dry_run: bool = False) -> Collected:
    """Remove versions that have been retired for the configured retention time.

    Raises:
        RegistryError: If there is no registry.
        UnreachableError: If it cannot be written.
    """
    retention = timedelta(days=config.registry.retention_days)
    with closing(open_store(config)) as store:
        return store.collect(now, retention, dry_run=dry_run)


def load_version(config: Config, name: str, ref: int | Alias = Alias.LIVE) -> Prompt:
    """The prompt of a published version. Errors as in `load_published`."""
    return load_published(config, name, ref).prompt


def load_published(config: Config, name: str, ref: int | Alias = Alias.LIVE) -> Published:
    """A published version: text and keys of one version, never of two.

    Raises:
        RegistryError: If it is not in the registry, or damaged there.
        UnreachableError: If the registry cannot be read.
    """
    with closing(open_store(config)) as store:
        return read_release(store.load(known_name(store, name), ref))


def load_live(config: Config, names: Sequence[str] = ()) -> list[Published]:
    """The live versions of the named prompts, or of all that have one. Errors as above."""
    with closing(open_store(config)) as store:
        known = [known_name(store, name) for name in names] or store.names()
        live = [n for n in known if names or store.state(n).serving.live is not None]
        return [read_release(store.load(name, Alias.LIVE)) for name in live]


def read_release(release: Release) -> Published:
    """The entry and the prompt in a release's bytes.

    Raises:
        RegistryError: If the two do not belong together.
    """
    origin = f"{release.name}@{release.version}"
    entry = decode_entry(release.record, origin)
    prompt = parse_prompt(release.files, name=release.name, origin=origin)
    if (entry.id, entry.content.digest) != (release.id, prompt.content_digest()):
        raise RegistryError(f"text and entry of {origin} do not belong together")
    return Published(entry=entry, prompt=prompt)


def known_name(store: Store, name: str) -> PromptName:
    """The name, if the registry knows it.

    Raises:
        RegistryError: If not, with the nearest one.
    """
    names = store.names()
    if name not in names:
        raise RegistryError(
            f"no version of '{name}' is in the registry",
            hint=did_you_mean(name, names) or f"prefixctl publish {name}",
        )
    return PromptName(name)


def _release(config: Config, lock: Lock, store: Store, wanted: Wanted) -> Release:
    name = PromptName(wanted.name)
    entry = _wanted_entry(config, lock, name, wanted.version)
    if entry.version in {v.version for v in store.state(name).versions}:
        release = store.load(name, entry.version)
        if release.id == entry.id:
            return release
    prompt = find_prompt(config, name)
    if prompt is None:
        raise DriftError(
            f"version {entry.version} of '{name}' is neither in the registry nor in the work tree",
            path=lock.path,
        )
    _refuse_drift(config, lock, prompt, entry)
    return Release(
        name=prompt.name,
        version=entry.version,
        id=entry.id,
        record=encode_entry(entry),
        files=prompt.files,
    )


def _wanted_entry(
    config: Config, lock: Lock, name: PromptName, version: int | None
) -> PrefixVersion:
    newest = lock.newest(name)
    if newest is None:
        if find_prompt(config, name) is None:
            raise unknown_prompt(name, list(lock.prompts))
        raise DriftError(
            f"'{name}' has no version yet", path=lock.path, hint=f"prefixctl bump {name}"
        )
    entry = newest if version is None else lock.find(name, version)
    if entry is None:
        raise LockError(
            f"no version {version} of '{name}'; the newest is {newest.version}", path=lock.path
        )
    return entry


def _refuse_drift(config: Config, lock: Lock, prompt: Prompt, entry: PrefixVersion) -> None:
    """Refuse a work tree that is not the version, in text or in the keys on the targets."""
    what = f"version {entry.version} of '{prompt.name}'"
    content = content_of(prompt)
    parts = changed_parts(entry.content, content)
    if parts and lock.newest(prompt.name) != entry:
        raise DriftError(
            f"the registry does not hold {what}, and the work tree differs from it: "
            f"{'; '.join(parts)}",
            path=prompt.origin,
            hint="check out the commit of that version and publish from there",
        )
    change = compare(entry.content, entry.targets, content, target_records(config, prompt))
    if change:
        causes = [f"target {t.target} ({', '.join(t.causes) or 'key'})" for t in change.targets]
        raise DriftError(
            f"the work tree is not {what}: {'; '.join(parts or causes)}",
            path=prompt.origin,
            hint=f"prefixctl bump {prompt.name}",
        )


def _change(name: PromptName, moved: Moved) -> AliasChange:
    live = moved.after.live
    if live is None:
        raise RegistryError(f"no version of '{name}' is live")
    return AliasChange(
        name=name, was_live=moved.before.live, live=live, previous=moved.after.previous
    )
