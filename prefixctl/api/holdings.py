"""What the disk tier holds of a target's model, as far as its servers could read it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixctl.config import Config, NvmeConfig
from prefixctl.core.keys import DEFAULT_ROOT_SEED, block_hashes
from prefixctl.core.tenancy import digest_of_salt, key_owners
from prefixctl.engine.hashing import hash_function
from prefixctl.engine.release import engine_release
from prefixctl.engine.tiers import configuration_digest
from prefixctl.engine.weights import weights_of
from prefixctl.errors import ConfigError
from prefixctl.ids import BlockHash, Salt
from prefixctl.prompts.target import Measurement, Target
from prefixctl.sources.secret import load_secret
from prefixctl.tiers.block import GROUP_BYTES, Header
from prefixctl.tiers.folder import TierFolder
from prefixctl.tiers.keyring import KeyRing
from prefixctl.tiers.serving import served_models, serving
from prefixctl.tiers.view import block_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The part of the disk tier that a target's servers read.

    Attributes:
        path: The tier's folder.
        model: The name of the model's folder in it.
        keyring: Their keys, None if blocks are not encrypted.
        ttl_seconds: How long a block lives that nobody uses, None for ever.
    """

    path: Path
    model: str
    keyring: KeyRing | None
    ttl_seconds: float | None

    def has(self, hashes: Sequence[BlockHash]) -> bool:
        """Whether a sound block that can be read is there for every one of these block hashes.

        Headers are looked at, bodies are not. A key is a block hash and the number of a cache
        group; any group counts.
        """
        oldest = 0.0 if self.ttl_seconds is None else time.time() - self.ttl_seconds
        readable = {
            header.key[:-GROUP_BYTES]
            for header, used in block_headers(self.path, self.model, hashes)
            if used >= oldest and self._can_read(header)
        }
        return readable.issuperset(hashes)

    def _can_read(self, header: Header) -> bool:
        if self.keyring is None:
            return header.nonce is None
        return header.nonce is not None and self.keyring.has_key(header.owner)


def holdings(config: Config, target: str, environment: Mapping[str, str]) -> Holdings | None:
    """What the disk holds for a target, None if no server of it has used the disk.

    Servers note which part they read. A note is out of date once the weights or vLLM have changed
    since, as far as this host can see them.

    Raises:
        ConfigError: If no NVMe tier is configured.
        InputError: If the key file cannot be used.
    """
    nvme, settings = nvme_of(config), config.target(target)
    path = config.root / nvme.path
    name = serving(path, configuration_digest(config, settings))
    about = None if name is None else TierFolder(path).about(name)
    if name is None or about is None:
        return None
    seen = {"weights": weights_of(config, settings), "engine": engine_release()}
    known = {what: value for what, value in seen.items() if value not in {None, "vllm"}}
    if any(about.get(what, value) != value for what, value in known.items()):
        return None
    return Holdings(
        path=path,
        model=name,
        keyring=tier_keyring(config, environment),
        ttl_seconds=None if nvme.ttl_hours is None else nvme.ttl_hours * 3600,
    )


def tier_keyring(config: Config, environment: Mapping[str, str]) -> KeyRing | None:
    """The keys of the disk tier, under the names that its blocks have; None without a key file.

    Raises:
        InputError: If the key file cannot be used.
    """
    nvme = nvme_of(config)
    if nvme.key_file is None:
        return None
    secret, models = load_secret(config, environment), known_models(config)
    if secret is None:
        return KeyRing(config.root / nvme.key_file)
    return KeyRing(
        config.root / nvme.key_file,
        names_of=lambda name: key_owners(secret, name, models=models, epoch=config.tenancy.epoch),
    )


def known_models(config: Config) -> set[str]:
    """What salts call the models of the targets, and those that were served from the disk tier."""
    models = {target.model_version for target in config.targets.values()}
    nvme = None if config.tiers is None else config.tiers.nvme
    return models if nvme is None else models | served_models(config.root / nvme.path)


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


def nvme_of(config: Config) -> NvmeConfig:
    """The configured NVMe tier.

    Raises:
        ConfigError: If there is none.
    """
    if config.tiers is None or config.tiers.nvme is None:
        raise ConfigError("no NVMe tier", path=config.path, hint="add tiers.nvme with path and gib")
    return config.tiers.nvme
