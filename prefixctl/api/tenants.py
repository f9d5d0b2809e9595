"""Salts of tenants and share groups, derived locally from the tenancy secret."""

from __future__ import annotations

from collections.abc import Mapping

from prefixctl.config import Config
from prefixctl.core.tenancy import Namespace, NamespaceKind, Secret, derive_salt
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.errors import ConfigError
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


def _salt(config: Config, secret: Secret, kind: NamespaceKind, name: str, model: str) -> Salt:
    namespace = Namespace(kind=kind, name=name)
    return derive_salt(secret, namespace, model=model, epoch=config.tenancy.epoch)
