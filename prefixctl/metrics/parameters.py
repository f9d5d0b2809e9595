"""Thresholds and windows of the generated rules: every figure that somebody may want to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from prefixctl.errors import UsageError
from prefixctl.yamlfile import did_you_mean

REPLICA_LABELS = (
    "container",
    "controller_revision_hash",
    "endpoint",
    "engine",
    "host",
    "hostname",
    "instance",
    "node",
    "pod",
    "pod_name",
    "pod_template_hash",
    "replica",
)

_SHARES = frozenset({"low_hit_rate", "min_baseline_hit_rate", "max_hit_rate_loss", "max_kv_usage"})
_DURATION = re.compile(r"(?P<count>[1-9]\d*)(?P<unit>[smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Every threshold and window. Shares are fractions of 1, rates are per second.

    Attributes:
        replica_labels: Labels that tell engines of one model apart; they are aggregated away, so
            that a fleet raises one alert. Set by vLLM (``engine``), Prometheus (``instance``)
            and the usual Kubernetes scrape configurations.
        evaluation_interval: How often the rules run.
        hold: How long a condition must last before it is an alert. Twice the 5 minutes of the
            rates, as the field does for low hit rates.
        cold_start: An engine counts for alerts once it is up this long. The time until a cache
            is warm depends on traffic; half an hour covers one deploy under load.
        baseline_window: How far back "its own past" reaches. It uses what there is, so it works
            on the first day; a whole day evens out day and night.
        baseline_offset: The past ends this long ago, so that a fall does not lower its own
            baseline at once.
        min_history: How old the oldest figure of the past must be before it ends.
        min_baseline_hit_rate: Below this share of hits there is nothing to lose, and a relative
            fall is noise.
        min_query_tokens_per_second: Traffic guard: below it one odd request moves the hit rate
            (20 tokens/s are about 6 prompts of 1,000 tokens in 5 minutes).
        min_requests_per_second: Traffic guard where requests are few and long (9 in 5 minutes).
            Not applied where the engine's request counts are missing.
        low_hit_rate: A hit rate below it is low. The figure that guides in the field give; right
            for chat and RAG, where 40 to 90 % of prompt tokens are a stable prefix.
        max_hit_rate_loss: Share of the past hit rate that may be lost.
        frozen_window: No hit at all for this long, under traffic, is a frozen cache.
        frozen_history: Where a frozen engine must have had hits before.
        ttft_p99_seconds: Bound of the time to first token. A cold prefix of a long prompt takes
            about 2.4 s in production reports, and vLLM has a bucket at 2.5 s.
        max_preemptions_per_second: Preemptions that are normal (one in 20 s).
        max_kv_usage: Share of KV blocks in live requests beyond which no room is left for idle
            cached ones.
        kv_block_sample: The server's ``--kv-cache-metrics-sample``; vLLM's default.
    """

    replica_labels: tuple[str, ...] = REPLICA_LABELS
    evaluation_interval: timedelta = timedelta(minutes=1)
    hold: timedelta = timedelta(minutes=10)
    cold_start: timedelta = timedelta(minutes=30)
    baseline_window: timedelta = timedelta(days=1)
    baseline_offset: timedelta = timedelta(minutes=30)
    min_history: timedelta = timedelta(minutes=15)
    min_baseline_hit_rate: float = 0.2
    min_query_tokens_per_second: float = 20.0
    min_requests_per_second: float = 0.03
    low_hit_rate: float = 0.4
    max_hit_rate_loss: float = 0.3
    frozen_window: timedelta = timedelta(minutes=10)
    frozen_history: timedelta = timedelta(hours=6)
    ttft_p99_seconds: float = 2.5
    max_preemptions_per_second: float = 0.05
    max_kv_usage: float = 0.95
    kv_block_sample: float = 0.01


def apply_settings(base: Parameters, settings: Sequence[str]) -> Parameters:
    """Change parameters by ``NAME=VALUE``; a window is written as Prometheus does: 10m.

    Raises:
        UsageError: If there is no such parameter, or the value is not of its kind.
    """
    known = {f.name for f in fields(base)} - {"replica_labels"}
    changes: dict[str, float | timedelta] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in known:
            raise UsageError(f"no parameter '{name}'", hint=did_you_mean(name, sorted(known)))
        is_window = isinstance(getattr(base, name), timedelta)
        changes[name] = _window(name, text) if is_window else _positive(name, text)
    return replace(base, **changes)  # type: ignore[arg-type]  # kinds are checked above


def _window(name: str, text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{name}: '{text}' is no time span", hint=f"write {name}=10m or {name}=1d")
    return timedelta(seconds=int(match["count"]) * _SECONDS[match["unit"]])


def _positive(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if name in _SHARES and not 0 < value < 1:
        raise UsageError(f"{name}: '{text}' is no share", hint="a fraction of 1, such as 0.5")
    if not 0 < value < float("inf"):
        raise UsageError(f"{name}: '{text}' is no positive number", hint=f"write {name}=0.5")
    return value
