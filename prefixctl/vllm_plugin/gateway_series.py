"""What the gateway counts, as series on vLLM's own ``/metrics``.

Every API process counts its own requests. Tenants are pseudonyms, and labels are bounded: names
beyond the busiest are ``other``.
"""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from prefixctl.gateway.record import ANOTHER, Record, TopLabels, label_values

MOST_PREFIXES = 200
_TTFT_BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0,
    7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_OWN_BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.05, 0.1, 1.0)
_PREFIX = ("model_name", "tenant", "prefix", "version")

REQUESTS = Counter(
    "prefixctl_requests",
    "Requests by what they got from the cache: full, partial, miss, too_short, unreported.",
    (*_PREFIX, "state"),
)
PROMPT_TOKENS = Counter("prefixctl_prompt_tokens", "Prompt tokens of requests.", _PREFIX)
CACHED_TOKENS = Counter(
    "prefixctl_cached_tokens", "Prompt tokens that the cache saved from being computed.", _PREFIX
)
TTFT = Histogram(
    "prefixctl_time_to_first_token_seconds",
    "From a streamed request's arrival at the gateway to its first token.",
    ("model_name", "state"),
    buckets=_TTFT_BUCKETS,
)
REJECTIONS = Counter(
    "prefixctl_gateway_rejections", "Requests that the gateway refused.", ("model_name", "reason")
)
DROPPED = Counter(
    "prefixctl_gateway_dropped_fields",
    "Fields and headers of clients that the gateway dropped, or made their tenant's own.",
    ("model_name", "field"),
)
OWN_SECONDS = Histogram(
    "prefixctl_gateway_seconds",
    "What the gateway took before it handed a request on, its body being there.",
    ("model_name",),
    buckets=_OWN_BUCKETS,
)


class Series:
    """Counts requests."""

    def __init__(self, model: str, *, label_tenants: int) -> None:
        """Set up.

        Args:
            model: The served model's name.
            label_tenants: Tenants with series of their own.
        """
        self._model = model
        self._tenants = TopLabels(label_tenants)
        self._prefixes = TopLabels(MOST_PREFIXES)

    def count(self, record: Record) -> None:
        """Count a request that is over."""
        model = self._model
        for field, number in record.dropped.items():
            DROPPED.labels(model, field).inc(number)
        if record.reason is not None:
            REJECTIONS.labels(model, record.reason.value).inc()
        state = record.state
        if state is None:
            return
        OWN_SECONDS.labels(model).observe(record.own_seconds)
        labels = (model, self._tenants.label(record.tenant), *self._prefix(record))
        REQUESTS.labels(*labels, state.value).inc()
        if record.use is not None:
            PROMPT_TOKENS.labels(*labels).inc(record.use.prompt_tokens)
            CACHED_TOKENS.labels(*labels).inc(record.use.cached_tokens or 0)
        if record.ttft_seconds is not None:
            TTFT.labels(model, state.value).observe(record.ttft_seconds)

    def _prefix(self, record: Record) -> tuple[str, str]:
        found = label_values(record)
        name, version = found["prefix"], found["version"]
        if not name or self._prefixes.label(f"{name}@{version}") != ANOTHER:
            return name, version
        return ANOTHER, ""
