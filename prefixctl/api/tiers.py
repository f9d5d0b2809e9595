"""Tiers below the device: what lies there, what they gave, what goes next; purge and retire."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from prefixctl.api.holdings import known_models, nvme_of
from prefixctl.api.tenants import require_secret
from prefixctl.api.tier_page import ServerTiers, read_page
from prefixctl.config import Config, is_name
from prefixctl.core.policy.make import depth_cost
from prefixctl.core.policy.tier import Rules
from prefixctl.core.reference import SHOWN_CHARS, version_number
from prefixctl.core.tenancy import (
    Namespace,
    NamespaceKind,
    owner_names,
)
from prefixctl.engine.admin import ADMIN_TOKEN, AdminClient
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import ConfigError, ExitCode, InputError, PrefixctlError, UsageError
from prefixctl.tiers.admin import count_owners, purge_owners, retire_version
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.keyring import EVERYBODY, create_key, destroy_key
from prefixctl.tiers.view import TierView, check_tier, is_tier, view_tier

PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierReport:
    """The folder, and the servers that were asked."""

    view: TierView
    max_bytes: int
    servers: tuple[ServerTiers, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What became of a tenant's or group's blocks.

    Attributes:
        blocks: Files that were removed.
        left: Blocks that are there all the same, on the disk and in servers; 0 is the proof.
        key_destroyed: Whether an encryption key was taken away.
        device: Blocks that servers let go of on their devices, by the server's address.
        host: Blocks that servers let go of in host memory.
        unreached: Servers and folders of which it is not known what they hold, and why.
    """

    blocks: int
    left: int
    key_destroyed: bool
    device: dict[str, int] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    unreached: dict[str, str] = field(default_factory=dict)

    @property
    def found_any(self) -> bool:
        """Whether there was anything to remove."""
        blocks = self.blocks + sum(self.device.values()) + sum(self.host.values())
        return bool(blocks or self.left or self.key_destroyed or self.unreached)

    @property
    def exit_code(self) -> ExitCode:
        """The worst of what happened."""
        if self.unreached:
            return ExitCode.UNREACHABLE
        return ExitCode.FINDINGS if self.left else ExitCode.OK


def show_tiers(config: Config, *, servers: Sequence[str] = (), victims: int = 10) -> TierReport:
    """Look at the NVMe tier's folder, and ask servers for their counters.

    Args:
        config: The configuration.
        servers: Base addresses.
        victims: How many of the next victims to name.

    Raises:
        ConfigError: If no NVMe tier is configured.
        InputError: If there is no tier in its folder.
        UnreachableError: If a server does not answer.
    """
    nvme = nvme_of(config)
    target = next(iter(config.targets.values()), None)
    rules = Rules(
        policy=nvme.policy,
        depth_cost=depth_cost(16 if target is None else target.block_size),
        ttl_seconds=None if nvme.ttl_hours is None else nvme.ttl_hours * 3600,
        shares=nvme.tenant_shares,
    )
    return TierReport(
        view=view_tier(config.root / nvme.path, rules, victims=victims),
        max_bytes=int(nvme.gib * 2**30),
        servers=tuple(_ask(url) for url in servers),
    )


def purge(
    config: Config,
    name: str,
    *,
    group: bool,
    environment: Mapping[str, str],
    servers: Sequence[str] = (),
    patience_seconds: float = PATIENCE_SECONDS,
) -> Purged:
    """Remove a tenant or share group from every tier.

    Its key first, then what running servers hold on their devices and in host memory, then its
    files: what a server was still writing is among them.

    Args:
        config: The configuration.
        name: The tenant's or the group's.
        group: Whether it is a group.
        environment: Where the tenancy secret and the servers' admin token stand.
        servers: Running servers; those of all targets if empty.
        patience_seconds: How long to wait for blocks of host memory that are in use.

    Raises:
        ConfigError: If there is neither a disk tier nor a server, no tenancy secret, or no admin
            token for the servers.
        UsageError: If a server's address is none, or the name is none.
        InputError: If the key file cannot be used.
    """
    if not is_name(name):
        raise UsageError(
            f"'{name[:SHOWN_CHARS]}' is no name of a tenant or group",
            hint="letters, digits, - _ and .",
        )
    urls = servers or [url for target in config.targets.values() for url in target.servers]
    disk = None if config.tiers is None else config.tiers.nvme
    if disk is None and not urls:
        disk = nvme_of(config)
    kind = NamespaceKind.GROUP if group else NamespaceKind.TENANT
    namespace = Namespace(kind=kind, name=name)
    owners = owner_names(
        require_secret(config, environment),
        namespace,
        models=known_models(config),
        epochs=range(config.tenancy.epoch + 2),
    )
    with ExitStack() as stack:
        token = environment.get(ADMIN_TOKEN, "").strip()
        if urls and not token:
            raise ConfigError(
                "no admin token, so running servers cannot be told",
                hint=f"set ${ADMIN_TOKEN} to the one that the servers run with",
            )
        clients = [stack.enter_context(AdminClient(url, token)) for url in dict.fromkeys(urls)]
        keys = None if disk is None or disk.key_file is None else config.root / disk.key_file
        destroyed = keys is not None and keys.exists() and destroy_key(keys, namespace.full_name)
        device, host, unreached, busy = {}, {}, {}, 0
        for client in clients:
            try:
                device[client.url], host[client.url], left, unknown = _clear(
                    client, sorted(owners), patience_seconds
                )
                busy += left
                if unknown:
                    unreached[client.url] = "it has a tier that is not prefixctl's"
            except PrefixctlError as exc:
                unreached[client.url] = exc.message
    blocks = left = 0
    if disk is not None:
        try:
            blocks, left = _purge_folder(config.root / disk.path, owners)
        except InputError as exc:
            unreached[str(config.root / disk.path)] = exc.message
    return Purged(
        blocks=blocks,
        left=left + busy,
        key_destroyed=destroyed,
        device=device,
        host=host,
        unreached=unreached,
    )


def _purge_folder(path: Path, owners: Collection[str]) -> tuple[int, int]:
    """Remove the files of these owners: how many there were, and are left.

    Raises:
        InputError: If that cannot be told.
    """
    if not is_tier(path):
        raise InputError("no tier is there; is the disk mounted?", path=str(path))
    tags = {owner_tag(owner) for owner in owners}
    return purge_owners(path, tags), count_owners(path, tags)


def _clear(
    client: AdminClient, owners: Sequence[str], patience: float
) -> tuple[int, int, int, bool]:
    """Let a server forget these owners: see `Cleared`, whose figures these are."""
    deadline, pause = time.monotonic() + patience, 0.2
    device = host = 0
    while True:
        answers = client.purge(owners)
        device += sum(answer.device for answer in answers)
        host += sum(answer.host for answer in answers)
        left = sum(answer.left for answer in answers)
        if not left or time.monotonic() >= deadline:
            return device, host, left, any(answer.unknown for answer in answers)
        time.sleep(pause)
        pause = min(2 * pause, 2.0)


def retire(config: Config, version: str, *, undo: bool = False) -> Path:
    """Let the blocks of ``name@version`` go first when the disk tier is full, or no longer.

    Raises:
        ConfigError: If no NVMe tier is configured.
        UsageError: If it is no version.
        InputError: If there is no tier in its folder.
    """
    path = config.root / nvme_of(config).path
    name, _, number = version.partition("@")
    if not is_name(name) or version_number(number) is None:
        raise UsageError(
            f"'{version[:SHOWN_CHARS]}' is no version of a prompt",
            hint="give the name of a prompt and a number, as support-agent@3",
        )
    check_tier(path)
    try:
        retire_version(path, version, undo=undo)
    except ValueError as exc:
        raise UsageError(f"'{version[:SHOWN_CHARS]}': {exc}") from exc
    return path


def make_key(config: Config, name: str, *, group: bool = False) -> Path:
    """Add an encryption key for a tenant, a group, or everybody else (``*``).

    Raises:
        ConfigError: If no key file is configured.
        UsageError: If it is no name.
        InputError: If the name has a key already.
    """
    if not is_name(name) and (group or name != EVERYBODY):
        raise UsageError(
            f"'{name[:SHOWN_CHARS]}' is no name of a tenant or group",
            hint="letters, digits, - _ and . (a group's with --group)",
        )
    kind = NamespaceKind.GROUP if group else NamespaceKind.TENANT
    file = nvme_of(config).key_file
    if file is None:
        raise ConfigError("no key file", path=config.path, hint="set tiers.nvme.key_file")
    create_key(config.root / file, Namespace(kind=kind, name=name).full_name)
    return config.root / file


def tier_folder(config: Config) -> Path | None:
    """The disk tier's folder, None if there is none that this user may look into."""
    nvme = None if config.tiers is None else config.tiers.nvme
    path = None if nvme is None else config.root / nvme.path
    try:
        return path if path is not None and is_tier(path) else None
    except PermissionError:
        return None


def _ask(url: str) -> ServerTiers:
    with HttpEngine(url) as engine:
        found = read_page(url, engine.metrics_page())
    if not found.tiers:
        raise InputError(
            f"{url} tells of no tier of ours",
            hint="start it with `prefixctl serve`; after its start it tells of them in seconds",
        )
    return found
