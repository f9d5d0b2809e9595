"""The registry as the engines are told of it: public prefixes by group, live prefixes to pin."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from prefixctl.config import Config, load_config
from prefixctl.core.tenancy import Namespace, NamespaceKind, derive_salt, pseudonym
from prefixctl.engine.admin import GovernedPrefix
from prefixctl.engine.launch import CONFIG_VARIABLE, TARGET_VARIABLE
from prefixctl.ids import Salt
from prefixctl.prompts.target import Target, load_target, measure, section_ends
from prefixctl.registry.publish import Published, read_release
from prefixctl.registry.store import open_store
from prefixctl.sources.secret import load_secret
from prefixctl.vllm_plugin.gateway_registry import RegistrySource


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What is on the shelf at one moment.

    Attributes:
        public: Token ids by the salt of a group and the name of a version.
        live: Live versions, in every namespace that shares them.
    """

    public: Mapping[str, Mapping[str, list[int]]] = field(repr=False)
    live: tuple[GovernedPrefix, ...]

    @property
    def digest(self) -> str:
        """A digest of what is public."""
        return hashlib.sha256(json.dumps(self.public, sort_keys=True).encode()).hexdigest()


class Shelf:
    """Reads what is published for one target, and measures it.

    Every kept version of a group's prompts is public, since a client may name an older one.
    """

    def __init__(self, config: Config, target: str) -> None:
        """Set up. Errors as in `RegistrySource` and `load_secret`.

        The secret is the one of this moment, as the gateway's and the scheduler's are: with another
        one later, groups would get salts that no request has.
        """
        self._config = config
        self._secret = load_secret(config, os.environ)
        self._target_name = target
        self._source = RegistrySource(config, target)
        self._target: Target | None = None
        self._measured: dict[tuple[str, int, str], GovernedPrefix] = {}

    @classmethod
    def from_environment(cls) -> Shelf | None:
        """The shelf that ``serve`` described, None if the registry plays no part here."""
        path, target = os.environ.get(CONFIG_VARIABLE), os.environ.get(TARGET_VARIABLE)
        if not path or not target:
            return None
        config = load_config(Path(path))
        if config.tenancy.sharing == "off" and not config.prefix_cache.pins.live:
            return None
        return cls(config, target)

    @property
    def pins_live(self) -> bool:
        """Whether live versions are to be pinned."""
        return self._config.prefix_cache.pins.live

    def stamp(self) -> Hashable:
        """Something that differs after every change of the registry."""
        return self._source.stamp()

    def read(self) -> Stock:
        """Everything as it is now; takes a while, so call it in a thread.

        Raises:
            PrefixctlError: If registry, target or secret cannot be used.
        """
        config = self._config
        spaces = self._namespaces()
        public: dict[str, dict[str, list[int]]] = {}
        live: list[GovernedPrefix] = []
        with closing(open_store(config)) as store:
            for name in store.names():
                shared = [salt for group, _, salt in spaces if self._lists(group, name)]
                if config.gateway.enabled and not shared:
                    continue  # in no group's hands: there is nothing to share or to pin
                state = store.state(name)
                versions = [read_release(store.load(name, v.version)) for v in state.versions]
                current = state.serving.live
                for salt in shared:
                    prefixes = public.setdefault(str(salt), {})
                    for each in versions:
                        found = self._measure(each)
                        prefixes[found.name] = list(found.token_ids)
                for each in versions:
                    if each.entry.version == current:
                        live += self._in_namespaces(each, name, spaces)
        return Stock(public=public, live=tuple(live))

    def _lists(self, group: str, name: str) -> bool:
        return name in self._config.tenancy.groups[group].prompts

    def _in_namespaces(
        self, published: Published, name: str, spaces: list[tuple[str, str, Salt]]
    ) -> list[GovernedPrefix]:
        """One copy for each group that shares the prompt; one without salt where there is none."""
        found = self._measure(published)
        named: list[tuple[str, Salt | None]] = [("", None)]
        if self._config.gateway.enabled:
            named = [(suffix, salt) for group, suffix, salt in spaces if self._lists(group, name)]
        return [
            GovernedPrefix(
                name=found.name + suffix,
                token_ids=found.token_ids,
                section_ends=found.section_ends,
                salt=salt,
            )
            for suffix, salt in named
        ]

    def _namespaces(self) -> list[tuple[str, str, Salt]]:
        """Each group, the suffix of its prefixes' names, and its salt."""
        config, secret = self._config, self._secret
        if secret is None:
            return []
        model = config.target(self._target_name).model_version
        named = [Namespace(kind=NamespaceKind.GROUP, name=group) for group in config.tenancy.groups]
        return [
            (
                each.name,
                f"#{pseudonym(secret, each.full_name)}",
                derive_salt(secret, each, model=model, epoch=config.tenancy.epoch),
            )
            for each in named
        ]

    def _measure(self, published: Published) -> GovernedPrefix:
        key = (published.prompt.name, published.entry.version, str(published.entry.id))
        known = self._measured.get(key)
        if known is None:
            if self._target is None:
                self._target = load_target(self._config, self._target_name)
            found = measure(published.prompt, self._target, self._config.prefix_cache)
            known = self._measured[key] = GovernedPrefix(
                name=f"{published.prompt.name}@{published.entry.version}",
                token_ids=found.token_ids,
                section_ends=section_ends(published.prompt, self._target, found),
            )
        return known
