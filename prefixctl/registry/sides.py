"""What a reference such as ``3``, ``live`` or the work tree stands for."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from prefixctl.config import Config
from prefixctl.core.prompt import Prompt
from prefixctl.core.reference import SHOWN_CHARS, version_number
from prefixctl.core.versions import Lock, PrefixVersion, content_of
from prefixctl.errors import RegistryError, UsageError
from prefixctl.ids import PromptName
from prefixctl.registry.publish import Published, load_published, read_release
from prefixctl.registry.store import open_store
from prefixctl.registry.store.base import Alias
from prefixctl.registry.worktree import find_prompt, governed_prompts, unknown_prompt

WORK_TREE = "work tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One version of a prompt, as far as it is at hand.

    Attributes:
        label: For messages: ``3``, ``live (3)`` or ``work tree``.
        entry: Its lock entry; None for the work tree.
        prompt: Its bytes; None if neither the registry nor the work tree holds them.
    """

    label: str
    entry: PrefixVersion | None
    prompt: Prompt | None


def resolve(config: Config, lock: Lock, name: str, ref: str | None) -> Side:
    """Find a version of a prompt.

    Args:
        config: The configuration.
        lock: The lock.
        name: The prompt.
        ref: A number, ``live``, ``previous``, or None for the work tree.

    Raises:
        UsageError: If there is no such prompt, or the reference is no version.
        RegistryError: If an alias stands for nothing, or the version is nowhere.
    """
    if ref is None:
        prompt = governed_prompts(config, [name])[0]
        return Side(label=WORK_TREE, entry=None, prompt=prompt)
    if ref in set(Alias):
        published = load_published(config, name, Alias(ref))
        label = f"{ref} ({published.entry.version})"
        return Side(label=label, entry=published.entry, prompt=published.prompt)
    number = version_number(ref)
    if number is None:
        raise UsageError(
            f"'{ref[:SHOWN_CHARS]}' is no version",
            hint="give a number, live or previous; or none: the work tree",
        )
    return _numbered(config, lock, PromptName(name), number)


def _numbered(config: Config, lock: Lock, name: PromptName, version: int) -> Side:
    entry = lock.find(name, version)
    kept = _kept(config, name, version)
    if kept is not None and (entry is None or kept.entry.id == entry.id):
        return Side(label=str(version), entry=kept.entry, prompt=kept.prompt)
    prompt = find_prompt(config, name)
    if entry is None:
        if name not in lock.prompts and prompt is None:
            raise unknown_prompt(name, list(lock.prompts))
        newest = lock.newest(name)
        raise RegistryError(
            f"no version {version} of '{name}', neither in the lock nor in the registry",
            hint=f"the newest is {newest.version}" if newest else f"prefixctl bump {name}",
        )
    same = prompt is not None and content_of(prompt).digest == entry.content.digest
    return Side(label=str(version), entry=entry, prompt=prompt if same else None)


def _kept(config: Config, name: PromptName, version: int) -> Published | None:
    """The version in the registry, if there is a registry and it keeps the version."""
    if not config.registry_path.exists():
        return None
    with closing(open_store(config)) as store:
        if version not in {v.version for v in store.state(name).versions}:
            return None
        return read_release(store.load(name, version))
