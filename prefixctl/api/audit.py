"""Audits of the isolation between tenants."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from prefixctl.api.tenants import on_behalf, operator_token, require_secret, tenant_salt
from prefixctl.audit.probe import ProbeReport, ProbeTenant, probe
from prefixctl.config import Config
from prefixctl.core.tenancy import NamespaceKind
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import UsageError
from prefixctl.ids import Salt
from prefixctl.sources.secret import load_secret


def audit_probe(
    config: Config,
    servers: Sequence[str],
    *,
    tenants: tuple[str, str] = ("probe-a", "probe-b"),
    target: str | None = None,
    salted: bool | None = None,
    rounds: int = 3,
    words: int = 400,
    environment: Mapping[str, str],
) -> list[ProbeReport]:
    """Test on each server that two tenants do not see each other through the cache.

    Args:
        config: The configuration.
        servers: Base addresses; the target's if empty.
        tenants: Two names.
        target: Whose model version the salts are for; any text serves without one.
        salted: True sends each tenant's salt, False none, as clients of an ungoverned server do;
            None sends them where there is a tenancy secret. To a gateway an operator says whom a
            request is for instead, and needs no secret.
        rounds: Texts for each direction and rank.
        words: Length of a text; several KV blocks.
        environment: Where the secret and the servers' API key may stand.

    Raises:
        UsageError: If the two names are one, or no server is known.
        ConfigError: If salts are asked for and there is no tenancy secret.
        UnreachableError: If a server does not answer.
    """
    if tenants[0] == tenants[1]:
        raise UsageError("the probe needs two different tenants")
    settings = config.only_target(target)[1] if config.targets or target else None
    addresses = servers or (settings.servers if settings else ())
    if not addresses:
        raise UsageError("no server to probe", hint="give --server URL, or the target's `servers:`")
    gated = config.gateway.enabled and salted is not False
    secret = None
    if salted is not False and not gated:
        secret = (require_secret if salted else load_secret)(config, environment)

    def salt_of(name: str) -> Salt | None:
        if gated:
            return on_behalf(NamespaceKind.TENANT, name)
        return None if secret is None else tenant_salt(config, secret, name, version)

    version = settings.model_version if settings else ""
    probed = [ProbeTenant(label=name, salt=salt_of(name)) for name in tenants]
    reports = []
    for address in addresses:
        model = config.served_name(settings) if settings else None
        api_key = environment.get(config.server.api_key_env)
        if gated:
            api_key = operator_token(config, environment)
        with HttpEngine(address, model=model, api_key=api_key) as engine:
            first, second = probed
            rng = random.SystemRandom()
            reports.append(probe(engine, (first, second), rounds=rounds, words=words, rng=rng))
    return reports
