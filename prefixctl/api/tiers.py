"""Tiers below the device: what lies there, what they gave, what goes next; purge and retire."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prefixctl.api.tenants import group_salt, require_secret, tenant_salt
from prefixctl.config import Config, NvmeConfig, is_name
from prefixctl.core.keys import DEFAULT_ROOT_SEED, block_hashes
from prefixctl.core.policy.make import depth_cost
from prefixctl.core.reference import SHOWN_CHARS, version_number
from prefixctl.core.tenancy import pseudonym
from prefixctl.engine.hashing import hash_function
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import ConfigError, InputError, UsageError
from prefixctl.ids import BlockHash, Salt
from prefixctl.prompts.target import Measurement, Target, model_version
from prefixctl.tiers.admin import count_owners, purge_owners, retire_version
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.index import Rules
from prefixctl.tiers.keyring import create_key, destroy_key
from prefixctl.tiers.view import TierView, check_tier, stored_model, view_tier

SERIES = re.compile(
    r'^prefixctl_tier_(\w+?)(?:_total)?\{(?:.*?(?:cause|reason)="(\w+)")?.*\} (\S+)$'
)
SOURCE = re.compile(r'^vllm:prompt_tokens_cached_by_source_total\{.*source="(\w+)".*\} (\S+)$')
PROMPT = re.compile(r"^vllm:prompt_tokens_total\{.*\} (\S+)$")


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
        left: Blocks that are there all the same; 0 is the proof.
        key_destroyed: Whether an encryption key was taken away.
    """

    blocks: int
    left: int
    key_destroyed: bool


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


def purge(config: Config, name: str, *, group: bool, environment: Mapping[str, str]) -> Purged:
    """Remove a tenant or share group from the disk: its key first, then its files.

    Host and device memory follow: without the salt nobody finds the blocks there, and they are
    evicted in time; a restart or a prefix-cache reset removes them at once.

    Raises:
        ConfigError: If no tier or no tenancy secret is configured.
    """
    nvme = nvme_of(config)
    secret = require_secret(config, environment)
    path = config.root / nvme.path
    tags = {owner_tag(pseudonym(secret, name))}
    salt_of = group_salt if group else tenant_salt
    for epoch in range(config.tenancy.epoch + 1):
        tenancy = config.tenancy.model_copy(update={"epoch": epoch})
        then = config.model_copy(update={"tenancy": tenancy}).at(config.root)
        for target in config.targets.values():
            salt = salt_of(then, secret, name, model_version(target))
            digest = hashlib.sha256(b"prefixctl-owner-1" + salt.encode()).hexdigest()[:12]
            tags.add(owner_tag(digest))
    destroyed = nvme.key_file is not None and destroy_key(config.root / nvme.key_file, name)
    removed = purge_owners(path, tags)
    return Purged(blocks=removed, left=count_owners(path, tags), key_destroyed=destroyed)


def retire(config: Config, version: str) -> Path:
    """Let the blocks of ``name@version`` go first when the disk tier is full.

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
        retire_version(path, version)
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
    target: Target, measured: Measurement, salt: Salt | None
) -> tuple[tuple[int, ...], list[BlockHash]]:
    """The tokens of a governed prefix's full blocks, and the engine's hash of each block."""
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
    _, hashes = full_blocks(target, measured, salt)
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
    prompt = 0
    for line in page.splitlines():
        if match := SERIES.match(line):
            name, label, text = match.groups()
            if label:
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
    )


def _mean_ms(values: Mapping[str, float], seconds: str, count: str) -> float | None:
    number = values.get(count, 0)
    return 1e3 * values.get(seconds, 0.0) / number if number else None
