"""All that the gateway of one API process works with, from configuration and environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from prefixctl.config import Config, load_config
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.engine.launch import CONFIG_VARIABLE, TARGET_VARIABLE
from prefixctl.errors import ConfigError, PrefixctlError
from prefixctl.gateway.groups import Groups
from prefixctl.gateway.identity import Identifier, check_identity
from prefixctl.gateway.keys import KeyRing
from prefixctl.gateway.ledger import Ledger
from prefixctl.gateway.live import LivePrefixes
from prefixctl.gateway.namespaces import Namespaces
from prefixctl.gateway.record import Record
from prefixctl.sources.secret import load_secret
from prefixctl.vllm_plugin import guard
from prefixctl.vllm_plugin.gateway_call import Site
from prefixctl.vllm_plugin.gateway_registry import RegistrySource

Accounts = Callable[[Config, str], Callable[[Record], None]]
"""Makes what is told each request, for a configuration and the served model's name."""


def open_site(environment: Mapping[str, str], accounts: Accounts) -> Site:
    """All that the gateway works with, as configuration and environment say.

    Args:
        environment: With the configuration's path and the target's name, as `serve` sets them.
        accounts: Where requests are counted and logged.

    Raises:
        UngovernableError: If anything is missing or wrong; the message says what to do.
    """
    try:
        return _site(environment, accounts)
    except PrefixctlError as exc:
        hint = f" ({exc.hint})" if exc.hint else ""
        raise guard.UngovernableError(f"prefixctl's gateway cannot work: {exc}{hint}") from exc


def _site(environment: Mapping[str, str], accounts: Accounts) -> Site:
    path, target = environment.get(CONFIG_VARIABLE), environment.get(TARGET_VARIABLE)
    if not path or not target:
        raise ConfigError(
            f"${CONFIG_VARIABLE} and ${TARGET_VARIABLE} are not set",
            hint="start the server with `prefixctl serve`, or with the command and the "
            "environment that `prefixctl serve --print` shows",
        )
    config = load_config(Path(path))
    settings = config.target(target)
    secret = load_secret(config, environment)
    if secret is None:
        raise ConfigError(
            "no tenancy secret",
            path=config.path,
            hint=f"set tenancy.secret_file, or ${config.tenancy.secret_env}",
        )
    check_identity(config, environment)
    gateway, groups = config.gateway, Groups(config.tenancy.groups)
    keys = None if gateway.keys_file is None else KeyRing(config.root / gateway.keys_file)
    return Site(
        gateway=gateway,
        groups=groups,
        identifier=Identifier(
            gateway,
            groups,
            keys=keys,
            admin_token=environment.get(ADMIN_TOKEN, ""),
        ),
        keys=keys,
        namespaces=Namespaces(secret, model=settings.model_version, epoch=config.tenancy.epoch),
        prefixes=LivePrefixes(RegistrySource(config, target)),
        ledger=Ledger(config.registry_path.with_name("gateway-rates")),
        account=accounts(config, config.served_name(settings)),
        block_tokens=settings.block_size,
        server_key=environment.get(config.server.api_key_env, ""),
    )
