"""Pins and residency on running servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from prefixctl.api.tenants import salted_namespaces
from prefixctl.config import Config
from prefixctl.core.reference import version_number
from prefixctl.core.tenancy import SaltedNamespace
from prefixctl.engine.admin import (
    ADMIN_TOKEN,
    AdminClient,
    EngineState,
    GovernedPrefix,
    PinState,
)
from prefixctl.errors import ConfigError, NothingToDoError, UsageError
from prefixctl.prompts.target import (
    Measurement,
    Target,
    load_target,
    measure,
    section_ends,
)
from prefixctl.registry.publish import Published, load_live, load_published


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which servers and namespaces a command is about.

    Attributes:
        target: Its name; may be left out if there is one only.
        servers: Base addresses; the target's if empty.
        tenants: Tenants, each under its own salt.
        groups: Share groups. Without tenants and groups requests carry no salt.
    """

    target: str | None = None
    servers: Sequence[str] = ()
    tenants: Sequence[str] = ()
    groups: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpinned:
    """A prefix that one server let go: blocks given back on each engine."""

    server: str
    name: str
    blocks: tuple[int, ...]


def pin_prefixes(
    config: Config,
    names: Sequence[str],
    *,
    scope: Scope,
    auto_hits: int | None = None,
    environment: Mapping[str, str],
) -> list[PinState]:
    """Pin versions on every engine of every server, and compute them where they are missing.

    Args:
        config: The configuration.
        names: Prompts, ``name`` for the live version or ``name@version``; all live ones if empty.
        scope: Servers and namespaces.
        auto_hits: Pin at so many hits within an hour, unpin when cold; None for good.
        environment: Where the admin token and the tenancy secret stand.

    Raises:
        UsageError: If no server is known, a name is none, or nobody is named and the servers are
            behind their gateway.
        ConfigError: If there is no admin token.
        NothingToDoError: If no version is live.
        UnreachableError, ServerError, InputError: See `AdminClient.pin`.
    """
    prefixes = governed_prefixes(config, names, scope=scope, environment=environment)
    with _clients(config, scope, environment) as clients:
        return [
            state
            for client in clients.all
            for prefix in prefixes
            for state in client.pin(prefix, auto_hits=auto_hits)
        ]


def unpin_prefixes(
    config: Config, names: Sequence[str], *, scope: Scope, environment: Mapping[str, str]
) -> list[Unpinned]:
    """Let pins go: ``name`` for every version and namespace of a prompt, ``name@version`` for one.

    Raises:
        UsageError: If no server has such a pin. Others as in `pin_prefixes`.
    """
    found: list[Unpinned] = []
    with _clients(config, scope, environment) as clients:
        pinned = {client: _pin_names(client) for client in clients.all}
        for name in names:
            if not any(_is_meant(name, pin) for pins in pinned.values() for pin in pins):
                known = sorted({pin for pins in pinned.values() for pin in pins})
                raise UsageError(
                    f"'{name}' is not pinned on any server",
                    hint=f"pinned: {', '.join(known)}" if known else "nothing is pinned",
                )
        for client, pins in pinned.items():
            for pin in pins:
                if any(_is_meant(name, pin) for name in names):
                    blocks = tuple(n for n in client.unpin(pin) if n is not None)
                    found.append(Unpinned(server=client.url, name=pin, blocks=blocks))
    return found


def engine_states(
    config: Config, *, scope: Scope, environment: Mapping[str, str]
) -> list[EngineState]:
    """Policy, pool and pins of every engine. Errors as in `pin_prefixes`."""
    with _clients(config, scope, environment) as clients:
        return [state for client in clients.all for state in client.state()]


def resident_prefixes(
    config: Config,
    names: Sequence[str] = (),
    *,
    scope: Scope,
    environment: Mapping[str, str],
) -> list[PinState]:
    """How much of each version every engine has. Arguments and errors as in `pin_prefixes`."""
    prefixes = governed_prefixes(config, names, scope=scope, environment=environment)
    with _clients(config, scope, environment) as clients:
        return [state for client in clients.all for state in client.resident(prefixes)]


def governed_prefixes(
    config: Config, names: Sequence[str], *, scope: Scope, environment: Mapping[str, str]
) -> list[GovernedPrefix]:
    """Versions of the registry as servers are told of them, in every namespace asked for.

    Raises:
        UsageError: If nobody is named, and the servers are behind their gateway.
    """
    if config.gateway.enabled and not (scope.tenants or scope.groups):
        raise UsageError(
            "for whom? behind the gateway every request has a salt, and none would find this",
            hint="give --group GROUP or --tenant TENANT",
        )
    target_name, _ = config.only_target(scope.target)
    target = load_target(config, target_name)
    wanted = [_split(name) for name in names]
    published = [_load(config, *name) for name in wanted] if wanted else load_live(config)
    if not published:
        raise NothingToDoError(
            "no version is live", path=str(config.registry_path), hint="prefixctl publish --all"
        )
    spaces = namespaces_of(config, scope, environment)
    return [
        governed_prefix(each, target, measure(each.prompt, target, config.prefix_cache), space)
        for each in published
        for space in spaces
    ]


def governed_prefix(
    published: Published, target: Target, measured: Measurement, space: SaltedNamespace
) -> GovernedPrefix:
    """A version in one namespace, as servers are told of it."""
    return GovernedPrefix(
        name=f"{published.prompt.name}@{published.entry.version}{space.suffix}",
        token_ids=measured.token_ids,
        section_ends=section_ends(published.prompt, target, measured),
        salt=space.salt_of(published.prompt.name),
    )


def namespaces_of(
    config: Config, scope: Scope, environment: Mapping[str, str]
) -> list[SaltedNamespace]:
    """The namespaces of a scope; errors as in `salted_namespaces`."""
    model = config.only_target(scope.target)[1].model_version
    return salted_namespaces(config, model, scope.tenants, scope.groups, environment)


def find_published(config: Config, name: str) -> Published:
    """A version of the registry: ``name`` for the live one, or ``name@version``.

    Raises:
        UsageError: If the name is none.
        RegistryError: If it is not published.
    """
    return _load(config, *_split(name))


def _load(config: Config, name: str, version: int | None) -> Published:
    if version is None:
        return load_live(config, [name])[0]
    return load_published(config, name, version)


def _split(name: str) -> tuple[str, int | None]:
    prompt, at, version = name.partition("@")
    if not at:
        return prompt, None
    number = version_number(version)
    if number is None:
        raise UsageError("no number of a version behind '@'", hint=f"give {prompt} or {prompt}@3")
    return prompt, number


def _pin_names(client: AdminClient) -> list[str]:
    return sorted({pin.name for state in client.state() for pin in state.pins})


def _is_meant(name: str, pin: str) -> bool:
    version = pin.partition("#")[0]
    return name in {pin, version, version.partition("@")[0]}


class _Clients(ExitStack):
    """Clients of all servers, closed together."""

    def __init__(self, urls: Sequence[str], token: str) -> None:
        super().__init__()
        self.all = [self.enter_context(AdminClient(url, token)) for url in urls]


def _clients(config: Config, scope: Scope, environment: Mapping[str, str]) -> _Clients:
    servers = scope.servers or config.only_target(scope.target)[1].servers
    if not servers:
        raise UsageError("no server to ask", hint="give --server URL, or the target's `servers:`")
    token = environment.get(ADMIN_TOKEN, "").strip()
    if not token:
        raise ConfigError(
            "no admin token", hint=f"set ${ADMIN_TOKEN} to the one that the server runs with"
        )
    return _Clients(servers, token)
