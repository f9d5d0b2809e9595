"""Tiers below the device: what lies there, what they gave, what goes next; purge and retire."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from prefixctl.api.tenants import require_secret
from prefixctl.config import Config, NvmeConfig, is_name
from prefixctl.core.keys import DEFAULT_ROOT_SEED, block_hashes
from prefixctl.core.policy.make import depth_cost
from prefixctl.core.reference import SHOWN_CHARS, version_number
from prefixctl.core.tenancy import (
    Namespace,
    NamespaceKind,
    Secret,
    digest_of_salt,
    owner_names,
)
from prefixctl.engine.admin import ADMIN_TOKEN, AdminClient
from prefixctl.engine.hashing import hash_function
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import ConfigError, ExitCode, InputError, PrefixctlError, UsageError
from prefixctl.ids import BlockHash, Salt
from prefixctl.prompts.target import Measurement, Target
from prefixctl.tiers.admin import count_owners, purge_owners, retire_version
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.index import Rules
from prefixctl.tiers.keyring import create_key, destroy_key
from prefixctl.tiers.view import TierView, check_tier, is_tier, stored_model, view_tier

SERIES = re.compile(
    r'^prefixctl_tier_(\w+?)(?:_total)?\{(?:.*?(?:cause|reason)="(\w+)")?.*\} (\S+)$'
)
SOURCE = re.compile(r'^vllm:prompt_tokens_cached_by_source_total\{.*source="(\w+)".*\} (\S+)$')
PROMPT = re.compile(r"^vllm:prompt_tokens_total\{.*\} (\S+)$")
PATIENCE_SECONDS = 10.0
HOST = 'tier="host"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTiers:
    """What one server says of its tiers, since it started.

    Attributes:
        url: Its address.
        prompt_tokens: All of them.
        cached_tokens: Those that were not computed, by the tier that gave them.
        hits: Blocks that the disk gave.
        misses: Blocks that were asked for and not served, by cause.
        stored: Blocks that were written.
        refused: Blocks that were not written, by reason.
        evictions: Blocks that left, by reason.
        load_ms: Mean milliseconds to load a block; None if none was.
        store_ms: Mean milliseconds to write a block; None if none was.
        bytes: Disk space in use, of all servers together.
        max_bytes: Disk space allowed.
        pinned: Blocks on the disk that no eviction may choose.
        host: Host memory: blocks, pinned_blocks, bytes and max_bytes.
    """

    url: str
    prompt_tokens: int = 0
    cached_tokens: dict[str, int] = field(default_factory=dict)
    hits: int = 0
    misses: dict[str, int] = field(default_factory=dict)
    stored: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    evictions: dict[str, int] = field(default_factory=dict)
    load_ms: float | None = None
    store_ms: float | None = None
    bytes: int = 0
    max_bytes: int = 0
    pinned: int = 0
    host: dict[str, int] = field(default_factory=dict)


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
        unreached: Servers of which it is not known what they hold, and why.
    """

    blocks: int
    left: int
    key_destroyed: bool
    device: dict[str, int] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    unreached: dict[str, str] = field(default_factory=dict)

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
        UsageError: If a server's address is none.
    """
    urls = servers or [url for target in config.targets.values() for url in target.servers]
    disk = None if config.tiers is None else config.tiers.nvme
    if disk is None and not urls:
        disk = nvme_of(config)
    owners = _owners(config, require_secret(config, environment), name, group=group)
    with ExitStack() as stack:
        token = environment.get(ADMIN_TOKEN, "").strip()
        if urls and not token:
            raise ConfigError(
                "no admin token, so running servers cannot be told",
                hint=f"set ${ADMIN_TOKEN} to the one that the servers run with",
            )
        clients = [stack.enter_context(AdminClient(url, token)) for url in dict.fromkeys(urls)]
        keys = None if disk is None else disk.key_file
        destroyed = keys is not None and destroy_key(config.root / keys, name)
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
    blocks, left = (0, 0) if disk is None else _purge_disk(config.root / disk.path, owners)
    return Purged(
        blocks=blocks,
        left=left + busy,
        key_destroyed=destroyed,
        device=device,
        host=host,
        unreached=unreached,
    )


def _purge_disk(path: Path, owners: Collection[str]) -> tuple[int, int]:
    """Remove the files of these owners: how many there were, and are left."""
    if not is_tier(path):
        return 0, 0
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


def _owners(config: Config, secret: Secret, name: str, *, group: bool) -> set[str]:
    """What the tiers call a tenant or group, in every epoch up to the next one."""
    kind = NamespaceKind.GROUP if group else NamespaceKind.TENANT
    return owner_names(
        secret,
        Namespace(kind=kind, name=name),
        models={target.model_version for target in config.targets.values()},
        epochs=range(config.tenancy.epoch + 2),
    )


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


def make_key(config: Config, name: str) -> Path:
    """Add an encryption key for a tenant, a group, or everybody else (``*``).

    Raises:
        ConfigError: If no key file is configured.
        InputError: If the name has a key already.
    """
    file = nvme_of(config).key_file
    if file is None:
        raise ConfigError("no key file", path=config.path, hint="set tiers.nvme.key_file")
    create_key(config.root / file, name)
    return config.root / file


def full_blocks(
    config: Config, target: Target, measured: Measurement, salt: Salt | None
) -> tuple[tuple[int, ...], list[BlockHash]]:
    """The tokens of a governed prefix's full blocks, and the engine's hash of each block.

    Where prefixes are shared, salts enter hashes as digests.
    """
    if salt is not None and config.tenancy.sharing == "on":
        salt = digest_of_salt(salt)
    unit = target.material.block_size
    blocks = len(measured.token_ids) // unit if measured.governed else 0
    token_ids = measured.token_ids[: blocks * unit]
    hashes = block_hashes(
        token_ids,
        block_size=unit,
        hash_function=hash_function(target.material.hash_algorithm),
        root_seed=target.material.hash_seed or DEFAULT_ROOT_SEED,
        salts=None if salt is None else {0: salt},
    )
    return token_ids, hashes


def in_tier(config: Config, target: Target, measured: Measurement, salt: Salt | None) -> bool:
    """Whether the disk holds all full blocks of a prefix in a namespace."""
    _, hashes = full_blocks(config, target, measured, salt)
    return stored_model(config.root / nvme_of(config).path, hashes) is not None


def nvme_of(config: Config) -> NvmeConfig:
    """The configured NVMe tier.

    Raises:
        ConfigError: If there is none.
    """
    if config.tiers is None or config.tiers.nvme is None:
        raise ConfigError("no NVMe tier", path=config.path, hint="add tiers.nvme with path and gib")
    return config.tiers.nvme


def _ask(url: str) -> ServerTiers:
    with HttpEngine(url) as engine:
        page = engine.metrics_page()
    values: dict[str, int | float] = {}
    labelled: dict[str, dict[str, int]] = {}
    sources: dict[str, int] = {}
    host: dict[str, int] = {}
    prompt = 0
    for line in page.splitlines():
        if match := SERIES.match(line):
            name, label, text = match.groups()
            if HOST in line:
                if not label:
                    host[name] = host.get(name, 0) + int(float(text))
            elif label:
                counts = labelled.setdefault(name, {})
                counts[label] = counts.get(label, 0) + int(float(text))
            else:
                values[name] = values.get(name, 0) + float(text)
        elif match := SOURCE.match(line):
            sources[match.group(1)] = sources.get(match.group(1), 0) + int(float(match.group(2)))
        elif match := PROMPT.match(line):
            prompt += int(float(match.group(1)))
    if not values:
        raise InputError(f"{url} runs no tier of ours", hint="start it with `prefixctl serve`")
    return ServerTiers(
        url=url,
        prompt_tokens=prompt,
        cached_tokens={k: v for k, v in sources.items() if v},
        hits=int(values.get("hits", 0)),
        misses=labelled.get("misses", {}),
        stored=int(values.get("stored_blocks", 0)),
        refused=labelled.get("refused_blocks", {}),
        evictions=labelled.get("evictions", {}),
        load_ms=_mean_ms(values, "load_seconds", "hits"),
        store_ms=_mean_ms(values, "store_seconds", "stored_blocks"),
        bytes=int(values.get("bytes", 0)),
        max_bytes=int(values.get("max_bytes", 0)),
        pinned=int(values.get("pinned_blocks", 0)),
        host=host,
    )


def _mean_ms(values: Mapping[str, float], seconds: str, count: str) -> float | None:
    number = values.get(count, 0)
    return 1e3 * values.get(seconds, 0.0) / number if number else None
