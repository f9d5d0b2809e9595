"""Make the live versions resident on the servers of a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from prefixctl.api.holdings import full_blocks, holdings, nvme_of
from prefixctl.api.tenants import on_behalf, operator_token, salted_namespaces
from prefixctl.config import Config
from prefixctl.core.tenancy import NamespaceKind, SaltedNamespace
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import NothingToDoError, UsageError
from prefixctl.ids import Salt
from prefixctl.prompts.target import Target, load_target, measure
from prefixctl.registry.lease import SqliteLeases
from prefixctl.registry.publish import Published, load_live
from prefixctl.warm.run import WarmItem, WarmOutcome, WarmReport, warm


def warm_prefixes(
    config: Config,
    names: Sequence[str] = (),
    *,
    target: str | None = None,
    servers: Sequence[str] = (),
    tenants: Sequence[str] = (),
    groups: Sequence[str] = (),
    concurrency: int = 2,
    from_tier: bool = False,
    environment: Mapping[str, str],
    on_left_out: Callable[[str], None] = lambda _: None,
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
        from_tier: Only what the disk tier of the configuration holds, so that nothing is computed.
        environment: Where the tenancy secret and the servers' API key may stand.
        on_left_out: Told what is left out because the disk tier does not hold it.
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
    items = [warm_item(config, loaded, p) for p in published]
    gated = config.gateway.enabled
    namespaces: list[SaltedNamespace] = []
    if from_tier or not gated:
        version = settings.model_version
        namespaces = salted_namespaces(config, version, tenants, groups, environment)
    missing: set[tuple[str, str]] = set()
    if from_tier:
        missing = _missing(config, loaded, items, namespaces, environment)
        for prompt, label in sorted(missing):
            on_left_out(f"{prompt} for {label}")
    api_key = environment.get(config.server.api_key_env)
    if gated:
        namespaces = list(_named(tenants, groups))
        api_key = operator_token(config, environment)
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
            left_out=missing,
            on_outcome=on_outcome,
        )


def _missing(
    config: Config,
    target: Target,
    items: Sequence[WarmItem],
    namespaces: Sequence[SaltedNamespace],
    environment: Mapping[str, str],
) -> set[tuple[str, str]]:
    """Prompt and namespace of each prefix that the disk tier does not hold.

    Raises:
        NothingToDoError: If it holds none of those that are long enough.
    """
    held = holdings(config, target.name, environment)
    wanted = [item for item in items if item.measurement.governed]

    def is_held(item: WarmItem, salt: Salt | None) -> bool:
        hashes = full_blocks(config, target, item.measurement, salt)[1]
        return held is not None and held.has(hashes)

    missing = {
        (str(item.prompt.name), space.label)
        for item in wanted
        for space in namespaces
        if not is_held(item, space.salt_of(item.prompt.name))
    }
    if wanted and len(missing) == len(wanted) * len(namespaces):
        scope = " ".join(f"--{space.label}" for space in namespaces if space.salt is not None)
        raise NothingToDoError(
            "the disk tier holds none of these prefixes",
            path=str(config.root / nvme_of(config).path),
            hint=f"prefixctl precompute {scope}".strip(),
        )
    return missing


def warm_item(config: Config, target: Target, published: Published) -> WarmItem:
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


def _named(tenants: Sequence[str], groups: Sequence[str]) -> Iterator[SaltedNamespace]:
    """Namespaces for a gateway, which knows the salts itself."""
    if not tenants and not groups:
        raise UsageError(
            "for whom? the servers are behind their gateway, and nothing is shared by all",
            hint="give --group GROUP or --tenant TENANT",
        )
    for group in groups:
        salt = on_behalf(NamespaceKind.GROUP, group)
        yield SaltedNamespace(label=f"group {group}", salt=salt)
    for tenant in tenants:
        salt = on_behalf(NamespaceKind.TENANT, tenant)
        yield SaltedNamespace(label=f"tenant {tenant}", salt=salt)
