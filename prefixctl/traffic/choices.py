"""The words that a simulation is described with."""

from __future__ import annotations

from enum import StrEnum


class Routing(StrEnum):
    """Which replica a request goes to."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOAD = "least-load"
    PREFIX_AWARE = "prefix-aware"


class Rules(StrEnum):
    """What is replayed: vLLM's pool, or a plain cache of full blocks as in caching papers."""

    ENGINE = "engine"
    PLAIN = "plain"


class Tenants(StrEnum):
    """Where tenants come from."""

    TRACE = "trace"
    SESSION = "session"


class Isolation(StrEnum):
    """What tenants share: everything, nothing, or what all requests begin with."""

    NONE = "none"
    FULL = "full"
    SELECTIVE = "selective"
