"""What engines count, as series on vLLM's own ``/metrics``.

The engine's process has no metrics page. The API processes ask it every few seconds (`keeper`);
an event is handed to exactly one of them, so the sum over processes is right, and gauges show the
last answer. What a scrape shows is at most `keeper.POLL_SECONDS` old.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import Counter, Gauge

_LABELS = ("model_name", "engine")

EVICTIONS = Counter(
    "prefixctl_evictions",
    "Cached blocks that went: for want of room (capacity), too old (ttl), reset, invalid, purged.",
    (*_LABELS, "reason"),
)
CROSS_TENANT_HITS = Counter(
    "prefixctl_cross_tenant_hits",
    "Requests that used blocks which another tenant had computed.",
    _LABELS,
)
CROSS_TENANT_HIT_BLOCKS = Counter(
    "prefixctl_cross_tenant_hit_blocks", "Blocks of such requests.", _LABELS
)
CROSS_TENANT_ATTEMPTS = Counter(
    "prefixctl_cross_tenant_attempts",
    "Requests whose first block another tenant had computed, and which salts kept apart.",
    _LABELS,
)
PREFIX_HITS = Counter(
    "prefixctl_prefix_hits",
    "Requests that found a pinned or watched prefix whole.",
    (*_LABELS, "prefix"),
)
FORGED_TICKETS = Counter(
    "prefixctl_forged_tickets",
    "Requests that claimed to come through the gateway, and did not.",
    _LABELS,
)
SHARED_REQUESTS = Counter(
    "prefixctl_shared_requests",
    "Requests that began with a public prefix of their group: shared, or in shadow mode counted.",
    (*_LABELS, "prefix", "mode"),
)
BLOCKS = Gauge(
    "prefixctl_blocks",
    "Blocks of the pool by state: pinned, cached (idle), in_flight, blank.",
    (*_LABELS, "state"),
    multiprocess_mode="mostrecent",
)
PIN_CAP = Gauge(
    "prefixctl_pin_cap_blocks",
    "Blocks that may be pinned at most.",
    _LABELS,
    multiprocess_mode="mostrecent",
)
PREFIX_BLOCKS = Gauge(
    "prefixctl_prefix_blocks",
    "Blocks of a pinned or watched prefix: wanted, resident, pinned.",
    (*_LABELS, "prefix", "state"),
    multiprocess_mode="mostrecent",
)

_COUNTERS = {
    "evictions": EVICTIONS,
    "cross_tenant_hits": CROSS_TENANT_HITS,
    "cross_tenant_hit_blocks": CROSS_TENANT_HIT_BLOCKS,
    "cross_tenant_attempts": CROSS_TENANT_ATTEMPTS,
    "prefix_hits": PREFIX_HITS,
    "forged_tickets": FORGED_TICKETS,
    "shared_requests": SHARED_REQUESTS,
}


def export(model: str, engine: int, answer: Mapping[str, Any]) -> None:
    """Show what one engine said in answer to ``drain``."""
    labels = (model, str(engine))
    for name, *values, count in answer["fresh"]:
        _COUNTERS[name].labels(*labels, *values).inc(count)
    for state in ("pinned", "cached", "in_flight", "blank"):
        BLOCKS.labels(*labels, state).set(answer["blocks"][state])
    PIN_CAP.labels(*labels).set(answer["pin_cap"])
    for pin in answer["pins"]:
        for state, value in (
            ("wanted", pin["blocks"]),
            ("resident", pin["resident"]),
            ("pinned", pin["pinned"]),
        ):
            PREFIX_BLOCKS.labels(*labels, pin["name"], state).set(value)


def forget(model: str, engine: int, prefix: str) -> None:
    """A prefix is no longer pinned or watched: its gauges say 0, since series cannot go."""
    for state in ("wanted", "resident", "pinned"):
        PREFIX_BLOCKS.labels(model, str(engine), prefix, state).set(0)
