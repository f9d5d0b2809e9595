"""Salts of tenants and share groups, derived locally from the tenancy secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prefixctl.config import Config
from prefixctl.core.tenancy import (
    UNSALTED,
    Namespace,
    NamespaceKind,
    SaltedNamespace,
    Secret,
    derive_salt,
    pseudonym,
)
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.errors import ConfigError
from prefixctl.gateway.groups import Groups
from prefixctl.ids import OnBehalf, Salt
from prefixctl.sources.secret import load_secret


def require_secret(config: Config, environment: Mapping[str, str]) -> Secret:
    """The tenancy secret.

    Raises:
        ConfigError: If there is none, or it is too short.
    """
    secret = load_secret(config, environment)
    if secret is None:
        raise ConfigError(
            "no tenancy secret",
            hint=f"set tenancy.secret_file in prefixctl.yaml, or ${config.tenancy.secret_env}",
        )
    return secret


def operator_token(config: Config, environment: Mapping[str, str]) -> str:
    """The token of operators, for servers behind their gateway.

    Raises:
        ConfigError: If there is none.
    """
    token = environment.get(ADMIN_TOKEN, "")
    if not token:
        raise ConfigError(
            "the servers are behind their gateway, and there is no operator's token",
            path=config.path,
            hint=f"set ${ADMIN_TOKEN} to the one that the servers were started with",
        )
    return token


def on_behalf(kind: NamespaceKind, name: str) -> OnBehalf:
    """Whom an operator's requests are for."""
    return OnBehalf(f"{kind.value}:{name}")


def tenant_salt(config: Config, secret: Secret, tenant: str, model: str) -> Salt:
    """The salt of a tenant on a model, in the configured epoch."""
    return _salt(config, secret, NamespaceKind.TENANT, tenant, model)


def group_salt(config: Config, secret: Secret, group: str, model: str) -> Salt:
    """The salt of a share group on a model, in the configured epoch."""
    return _salt(config, secret, NamespaceKind.GROUP, group, model)


def salted_namespaces(
    config: Config,
    model: str,
    tenants: Sequence[str],
    groups: Sequence[str],
    environment: Mapping[str, str],
) -> list[SaltedNamespace]:
    """The namespaces of groups and tenants with their salts; the one without if none is named.

    Args:
        config: The configuration.
        model: Model and revision, see `TargetConfig.model_version`.
        tenants: Tenants, each under its own salt.
        groups: Share groups.
        environment: Where the tenancy secret may stand.

    Raises:
        ConfigError: If somebody is named, and there is no tenancy secret.
    """
    if not tenants and not groups:
        return [UNSALTED]
    secret = require_secret(config, environment)
    return [_group(config, secret, name, model) for name in groups] + [
        _tenant(config, secret, name, model) for name in tenants
    ]


def _group(config: Config, secret: Secret, name: str, model: str) -> SaltedNamespace:
    return SaltedNamespace(
        label=f"group {name}",
        salt=group_salt(config, secret, name, model),
        suffix=f"#{pseudonym(secret, Namespace(kind=NamespaceKind.GROUP, name=name).full_name)}",
    )


def _tenant(config: Config, secret: Secret, name: str, model: str) -> SaltedNamespace:
    space = SaltedNamespace(
        label=f"tenant {name}",
        salt=tenant_salt(config, secret, name, model),
        suffix=f"#{pseudonym(secret, name)}",
    )
    group = Groups(config.tenancy.groups).of(name)
    if config.tenancy.sharing != "on" or group is None:
        return space
    return replace(
        space,
        shared=frozenset(config.tenancy.groups[group].prompts),
        group_salt=group_salt(config, secret, group, model),
    )


def _salt(config: Config, secret: Secret, kind: NamespaceKind, name: str, model: str) -> Salt:
    namespace = Namespace(kind=kind, name=name)
    return derive_salt(secret, namespace, model=model, epoch=config.tenancy.epoch)
