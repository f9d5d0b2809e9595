"""Audits of the isolation between tenants."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from prefixctl.api.tenants import tenant_salt
from prefixctl.audit.probe import ProbeReport, ProbeTenant, probe
from prefixctl.config import Config
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import UsageError
from prefixctl.prompts.target import model_version
from prefixctl.sources.secret import load_secret


def audit_probe(
    config: Config,
    servers: Sequence[str],
    *,
    tenants: tuple[str, str] = ("probe-a", "probe-b"),
    target: str | None = None,
    salted: bool = True,
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
        salted: False sends no salts, as clients of an ungoverned server do. Without a tenancy
            secret no salts can be sent either.
        rounds: Texts for each direction and rank.
        words: Length of a text; several KV blocks.
        environment: Where the secret may stand.

    Raises:
        UsageError: If the two names are one, or no server is known.
        UnreachableError: If a server does not answer.
    """
    if tenants[0] == tenants[1]:
        raise UsageError("the probe needs two different tenants")
    settings = config.only_target(target) if config.targets else None
    addresses = servers or (settings[1].servers if settings else ())
    if not addresses:
        raise UsageError("no server to probe", hint="give --server URL, or the target's `servers:`")
    secret = load_secret(config, environment) if salted else None
    version = model_version(settings[1]) if settings else ""
    probed = [
        ProbeTenant(
            label=name,
            salt=None if secret is None else tenant_salt(config, secret, name, version),
        )
        for name in tenants
    ]
    reports = []
    for address in addresses:
        with HttpEngine(address) as engine:
            first, second = probed
            rng = random.SystemRandom()
            reports.append(probe(engine, (first, second), rounds=rounds, words=words, rng=rng))
    return reports
