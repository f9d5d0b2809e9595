"""Alert rules on the recorded series.

Each cause raises one alert: hits that stop outrank a fall, a fall outranks a low level,
preemptions outrank a full pool.
"""

from __future__ import annotations

from datetime import timedelta

from prefixctl.metrics.model import AlertRule, AlertSeverity, Runbooks
from prefixctl.metrics.parameters import Parameters
from prefixctl.metrics.promql import (
    Step,
    aggregate_by,
    also,
    call,
    chain,
    duration,
    number,
    parens,
    unless,
)
from prefixctl.metrics.recording import (
    FROZEN_ENGINES,
    HIT_RATE_PER_BASELINE,
    HIT_RATE_WARM,
    KV_USAGE_MAX,
    PREEMPTIONS,
    QUERIES_WARM,
    REQUESTS,
    TTFT_P99,
    WARM_ENGINES,
)
from prefixctl.metrics.selector import Matcher, Source

HIT_RATE_LOW = "PrefixCacheHitRateLow"
HIT_RATE_DROPPED = "PrefixCacheHitRateDropped"
HITS_FROZEN = "PrefixCacheHitsFrozen"
PREEMPTING = "PrefixCachePreemptions"
KV_PRESSURE = "PrefixCacheKvPressure"
TTFT_HIGH = "PrefixCacheTtftHigh"
METRICS_ABSENT = "PrefixCacheMetricsAbsent"
DISABLED = "PrefixCacheDisabled"

DEPLOYMENT_LABELS = ("cluster", "namespace", "job")
"""What is kept of ``cache_config_info``; its other labels are settings and differ by release."""

_MODEL = "{{ $labels.model_name }}"


def alert_rules(
    source: Source, parameters: Parameters, runbooks: Runbooks
) -> tuple[AlertRule, ...]:
    """All alerts of the first day."""
    return (
        _hit_rate_low(parameters, runbooks),
        _hit_rate_dropped(parameters, runbooks),
        _hits_frozen(parameters, runbooks),
        _ttft_high(parameters, runbooks),
        _preemptions(parameters, runbooks),
        _kv_pressure(parameters, runbooks),
        _metrics_absent(source, parameters, runbooks),
        _disabled(source, parameters, runbooks),
    )


def _hit_rate_low(parameters: Parameters, runbooks: Runbooks) -> AlertRule:
    limit = parameters.low_hit_rate
    return AlertRule(
        alert=HIT_RATE_LOW,
        expr=chain(
            f"{HIT_RATE_WARM} < {number(limit)}",
            *_busy(parameters),
            unless(parens(_fallen(parameters))),
            unless(FROZEN_ENGINES),
        ),
        hold=parameters.hold,
        severity=AlertSeverity.WARNING,
        summary="The prefix cache hit rate is low.",
        description=f"{_MODEL}: {{{{ $value | humanizePercentage }}}} of the prompt tokens are "
        f"found in the device cache, under traffic; expected are {limit:.0%} or more.",
        runbook_url=runbooks.url(HIT_RATE_LOW),
    )


def _hit_rate_dropped(parameters: Parameters, runbooks: Runbooks) -> AlertRule:
    past = duration(parameters.baseline_window)
    return AlertRule(
        alert=HIT_RATE_DROPPED,
        expr=chain(_fallen(parameters), *_busy(parameters), unless(FROZEN_ENGINES)),
        hold=parameters.hold,
        severity=AlertSeverity.WARNING,
        summary="The prefix cache hit rate fell against its own past.",
        description=f"{_MODEL}: the hit rate is at {{{{ $value | humanizePercentage }}}} of its "
        f"mean over the past {past}; engines that have just started are left out.",
        runbook_url=runbooks.url(HIT_RATE_DROPPED),
    )


def _hits_frozen(parameters: Parameters, runbooks: Runbooks) -> AlertRule:
    return AlertRule(
        alert=HITS_FROZEN,
        expr=f"{FROZEN_ENGINES} > 0",
        # The window of the recorded series is the wait; a second one would only delay.
        hold=timedelta(),
        severity=AlertSeverity.CRITICAL,
        summary="Prefix cache hits have stopped while queries go on.",
        description=f"{_MODEL}: {{{{ $value }}}} engine(s) had hits before and not one in "
        f"{duration(parameters.frozen_window)}, under traffic.",
        runbook_url=runbooks.url(HITS_FROZEN),
    )


def _ttft_high(parameters: Parameters, runbooks: Runbooks) -> AlertRule:
    limit = number(parameters.ttft_p99_seconds)
    enough = parens(f"{REQUESTS} > {number(parameters.min_requests_per_second)}")
    return AlertRule(
        alert=TTFT_HIGH,
        expr=chain(f"{TTFT_P99} > {limit}", also(enough), also(parens(f"{WARM_ENGINES} > 0"))),
        hold=parameters.hold,
        severity=AlertSeverity.WARNING,
        summary="The time to first token is high.",
        description=f"{_MODEL}: the 99th percentile of the time to first token is "
        f'{{{{ $value | printf "%.4g" }}}} s; the bound is {limit} s.',
        runbook_url=runbooks.url(TTFT_HIGH),
    )


def _preemptions(parameters: Parameters, runbooks: Runbooks) -> AlertRule:
    return AlertRule(
        alert=PREEMPTING,
        expr=_preempting(parameters),
        hold=parameters.hold,
        severity=AlertSeverity.WARNING,
        summary="Requests are preempted because the KV cache is full.",
        description=f'{_MODEL}: {{{{ $value | printf "%.2f" }}}} preemptions per second. Requests '
        "are computed twice, and no block stays cached for long.",
        runbook_url=runbooks.url(PREEMPTING),
    )


def _kv_pressure(parameters: Parameters, runbooks: Runbooks) -> AlertRule:
    full = f"{KV_USAGE_MAX} > {number(parameters.max_kv_usage)}"
    return AlertRule(
        alert=KV_PRESSURE,
        expr=chain(full, unless(parens(_preempting(parameters)))),
        hold=parameters.hold,
        severity=AlertSeverity.INFO,
        summary="Live requests leave no room for cached prefixes.",
        description=f"{_MODEL}: live requests hold {{{{ $value | humanizePercentage }}}} of the "
        "KV blocks of the fullest engine; idle cached blocks are evicted at once.",
        runbook_url=runbooks.url(KV_PRESSURE),
    )


def _metrics_absent(source: Source, parameters: Parameters, runbooks: Runbooks) -> AlertRule:
    queries = source.vector("vllm:prefix_cache_queries_total")
    return AlertRule(
        alert=METRICS_ABSENT,
        expr=call("absent", queries),
        hold=parameters.hold,
        severity=AlertSeverity.WARNING,
        summary="No engine reports prefix cache metrics.",
        description="Prometheus has no prefix cache counter from any engine, so none of the other "
        "alerts can fire.",
        runbook_url=runbooks.url(METRICS_ABSENT),
    )


def _disabled(source: Source, parameters: Parameters, runbooks: Runbooks) -> AlertRule:
    off = Matcher(label="enable_prefix_caching", op="=", value="False")
    engines = aggregate_by(
        "count", source.vector("vllm:cache_config_info", off), by=DEPLOYMENT_LABELS
    )
    return AlertRule(
        alert=DISABLED,
        expr=f"{engines} > 0",
        hold=parameters.hold,
        severity=AlertSeverity.WARNING,
        summary="Prefix caching is switched off.",
        description="{{ $labels.job }}: {{ $value }} engine(s) run without prefix caching.",
        runbook_url=runbooks.url(DISABLED),
    )


def _fallen(parameters: Parameters) -> str:
    return f"{HIT_RATE_PER_BASELINE} < {number(1 - parameters.max_hit_rate_loss)}"


def _preempting(parameters: Parameters) -> str:
    return f"{PREEMPTIONS} > {number(parameters.max_preemptions_per_second)}"


def _busy(parameters: Parameters) -> tuple[Step, ...]:
    """Keeps a ratio only where enough tokens and requests stand behind it."""
    tokens = f"{QUERIES_WARM} > {number(parameters.min_query_tokens_per_second)}"
    few = f"{REQUESTS} < {number(parameters.min_requests_per_second)}"
    return also(parens(tokens)), unless(parens(few))
