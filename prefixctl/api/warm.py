"""Make the live versions resident on the servers of a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from prefixctl.api.tenants import group_salt, require_secret, tenant_salt
from prefixctl.config import Config
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import NothingToDoError, UsageError
from prefixctl.prompts.target import Target, load_target, measure, model_version
from prefixctl.registry.lease import SqliteLeases
from prefixctl.registry.publish import Published, load_live
from prefixctl.warm.run import SaltedNamespace, WarmItem, WarmOutcome, WarmReport, warm


def warm_prefixes(
    config: Config,
    names: Sequence[str] = (),
    *,
    target: str | None = None,
    servers: Sequence[str] = (),
    tenants: Sequence[str] = (),
    groups: Sequence[str] = (),
    concurrency: int = 2,
    environment: Mapping[str, str],
    on_outcome: Callable[[WarmOutcome, int, int], None] = lambda *_: None,
) -> WarmReport:
    """Warm live versions on every server and data-parallel rank, and verify each.

    Args:
        config: The configuration.
        names: Prompts; all live ones if empty.
        target: Its name; may be left out if there is one only.
        servers: Base addresses; the target's if empty.
        tenants: Tenants to warm for, each under its own salt.
        groups: Share groups to warm for. Without tenants and groups requests carry no salt.
        concurrency: Requests in flight at most on each server.
        environment: Where the tenancy secret and the servers' API key may stand.
        on_outcome: Told each outcome, the number done and the number of all.

    Raises:
        UsageError: If no server is known, or a prompt's name is not.
        NothingToDoError: If no version is live.
        ConfigError, TokenizerError, RegistryError: If target, secret or registry are wrong.
    """
    name, settings = config.only_target(target)
    addresses = servers or settings.servers
    if not addresses:
        raise UsageError("no server to warm", hint="give --server URL, or the target's `servers:`")
    loaded = load_target(config, name)
    published = load_live(config, names)
    if not published:
        raise NothingToDoError(
            "no version is live", path=str(config.registry_path), hint="prefixctl publish --all"
        )
    items = [_item(config, loaded, p) for p in published]
    namespaces = list(_namespaces(config, model_version(settings), tenants, groups, environment))
    api_key = environment.get(config.server.api_key_env)
    served_name = config.served_name(settings)
    with ExitStack() as stack:
        engines = [
            stack.enter_context(HttpEngine(a, model=served_name, api_key=api_key))
            for a in addresses
        ]
        return warm(
            items,
            engines,
            loaded,
            namespaces,
            served_name=served_name,
            lease=SqliteLeases(config.registry_path.with_suffix(".leases")),
            concurrency=concurrency,
            on_outcome=on_outcome,
        )


def _item(config: Config, target: Target, published: Published) -> WarmItem:
    """Measure a live version, and see whether the target is the one that it was bumped for."""
    entry, prompt = published.entry, published.prompt
    measured = measure(prompt, target, config.prefix_cache)
    recorded = entry.targets.get(target.name)
    drift = ""
    if recorded is None:
        drift = f"version {entry.version} knows no target '{target.name}': run `prefixctl bump`"
    elif recorded.key != measured.key:
        drift = (
            f"target '{target.name}' is not what version {entry.version} was bumped for: model, "
            "tokenizer, chat template or settings changed; bump it, or publish a version made "
            "for this target (`prefixctl bump --check`, `prefixctl history`)"
        )
    return WarmItem(prompt=prompt, version=entry.version, measurement=measured, drift=drift)


def _namespaces(
    config: Config,
    model: str,
    tenants: Sequence[str],
    groups: Sequence[str],
    environment: Mapping[str, str],
) -> Iterator[SaltedNamespace]:
    if not tenants and not groups:
        yield SaltedNamespace(label="no salt", salt=None)
        return
    secret = require_secret(config, environment)
    for group in groups:
        yield SaltedNamespace(label=f"group {group}", salt=group_salt(config, secret, group, model))
    for tenant in tenants:
        yield SaltedNamespace(
            label=f"tenant {tenant}", salt=tenant_salt(config, secret, tenant, model)
        )
