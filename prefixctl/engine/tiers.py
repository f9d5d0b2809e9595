"""The arguments that give a server its tiers below the device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from prefixctl.config import Config, NvmeConfig, TargetConfig, TiersConfig
from prefixctl.core.prompt import canonical_json
from prefixctl.core.tiering import EXTRA_NAME, NvmeSettings, TierSettings
from prefixctl.errors import ConfigError

PLUGIN = "prefixctl.vllm_plugin.tiers"
ARGUMENT = "--kv-transfer-config"
SHARED_TYPES = ("obj",)
UNPROVEN = ("lmcache", "mooncake")
GIB = 2**30


def tier_arguments(config: Config, target: TargetConfig | None = None) -> list[str]:
    """VLLM's connector, told of our tiers; nothing if there are none.

    Raises:
        ConfigError: If the configuration asks for a tier that is not known to honour salts, or
            for two connectors.
    """
    check_foreign_connectors(config)
    if config.tiers is None:
        return []
    settings = tier_settings(config, config.tiers, target)
    return [ARGUMENT, json.dumps(connector(settings, _shared(config)), sort_keys=True)]


def connector(settings: TierSettings, further: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The value of ``--kv-transfer-config``.

    Args:
        settings: Ours.
        further: vLLM's own tiers below ours.
    """
    nvme = {
        "type": "NvmeTier",
        "module_path": f"{PLUGIN}.nvme",
        "backpressure": {"backpressure_cls": f"{PLUGIN}.pressure.WriteQueue"},
    }
    return {
        "kv_connector": "GovernedConnector",
        "kv_connector_module_path": f"{PLUGIN}.connector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "GovernedTieringSpec",
            "spec_module_path": f"{PLUGIN}.spec",
            "cpu_bytes_to_use": settings.host_bytes,
            "secondary_tiers": [*([nvme] if settings.nvme else []), *further],
            EXTRA_NAME: settings.to_json(),
        },
    }


def tier_settings(config: Config, tiers: TiersConfig, target: TargetConfig | None) -> TierSettings:
    """What the plugin is told."""
    tenancy = config.tenancy
    secret = tenancy.secret_file
    ttl = config.prefix_cache.evict.ttl_hours
    return TierSettings(
        host_bytes=int(tiers.host_gib * GIB),
        policy=tiers.policy,
        ttl_seconds=None if ttl is None else ttl * 3600,
        tenant_shares=tiers.tenant_shares,
        nvme=None if tiers.nvme is None else nvme_settings(config, tiers.nvme),
        weights=None if target is None else target.weights_fingerprint,
        adapter=None if target is None else target.adapter_digest,
        secret_file=None if secret is None else str((config.root / secret).absolute()),
        secret_env=tenancy.secret_env,
        model=None if target is None else target.model_version,
        epoch=tenancy.epoch,
        configuration="" if target is None else configuration_digest(config, target),
    )


def configuration_digest(config: Config, target: TargetConfig) -> str:
    """What stands for all that decides which blocks a server of a target can use, in hex."""
    server = config.server
    told = target.model_dump(
        mode="json",
        exclude={"servers", "parameters", "tokenizer", "chat_template", "chat_template_kwargs"},
    )
    told |= {"ranks": server.tensor_parallel_size, "arguments": list(server.extra_args)}
    return hashlib.sha256(canonical_json(told)).hexdigest()


def nvme_settings(config: Config, nvme: NvmeConfig) -> NvmeSettings:
    """The disk tier's part of it, with absolute paths."""
    keys = nvme.key_file
    return NvmeSettings(
        path=str((config.root / nvme.path).absolute()),
        max_bytes=int(nvme.gib * GIB),
        policy=nvme.policy,
        ttl_seconds=None if nvme.ttl_hours is None else nvme.ttl_hours * 3600,
        tenant_shares=nvme.tenant_shares,
        key_file=None if keys is None else str((config.root / keys).absolute()),
        threads=nvme.threads,
    )


def check_foreign_connectors(config: Config) -> None:
    """Refuse a connector in the further arguments that nobody has shown to honour salts.

    Raises:
        ConfigError: For LMCache and Mooncake under governance, and for a second connector.
    """
    given = " ".join(config.server.extra_args).lower()
    named = next((name for name in UNPROVEN if name in given), None)
    if named is not None and config.server.governed:
        raise ConfigError(
            f"server.extra_args asks for {named}, which is not known to keep tenants apart: "
            "LMCache's adapter never reads the salt, Mooncake's was not tried",
            path=config.path,
            hint="use `tiers:`, or serve ungoverned with `server: {governed: false}`",
        )
    if config.tiers is not None and ARGUMENT in given:
        raise ConfigError(
            f"`tiers:` and {ARGUMENT} in server.extra_args both name a connector",
            path=config.path,
            hint="keep one of them",
        )


def _shared(config: Config) -> list[dict[str, Any]]:
    shared = None if config.tiers is None else config.tiers.shared
    if shared is None:
        return []
    if shared.get("type") not in SHARED_TYPES:
        raise ConfigError(
            f"tiers.shared.type is '{shared.get('type')}', not {' or '.join(SHARED_TYPES)}",
            path=config.path,
            hint="only vLLM's own object store is passed on",
        )
    return [dict(shared)]
