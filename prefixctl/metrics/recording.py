"""Recording rules on the series that stock vLLM exports.

Upstream names keep their colon in expressions; in the metric part of a recorded name it becomes
an underscore, so that every name has its three fields: level, metric, operations.
"""

from __future__ import annotations

from datetime import timedelta

from prefixctl.metrics.model import RecordingRule
from prefixctl.metrics.parameters import Parameters
from prefixctl.metrics.promql import (
    Step,
    aggregate,
    also,
    binary,
    call,
    chain,
    guarded_ratio,
    number,
    parens,
    unless,
    window,
)
from prefixctl.metrics.selector import Source

QUERIES = "model:vllm_prefix_cache_queries:rate5m"
HITS = "model:vllm_prefix_cache_hits:rate5m"
HIT_RATE = "model:vllm_prefix_cache_hits_per_vllm_prefix_cache_queries:ratio_rate5m"
HIT_RATE_FIELD_NAME = "prefix_cache:hit_rate:5m"
QUERIES_WARM = "model:vllm_prefix_cache_queries_warm:rate5m"
HITS_WARM = "model:vllm_prefix_cache_hits_warm:rate5m"
HIT_RATE_WARM = "model:vllm_prefix_cache_hits_warm_per_vllm_prefix_cache_queries_warm:ratio_rate5m"
BASELINE = "model:vllm_prefix_cache_hits_per_vllm_prefix_cache_queries:baseline"
HIT_RATE_PER_BASELINE = "model:vllm_prefix_cache_hit_rate_warm_per_baseline:ratio"
WARM_ENGINES = "model:vllm_warm_engines:count"
FROZEN_ENGINES = "model:vllm_frozen_engines:count"
PROMPT_TOKENS = "model:vllm_prompt_tokens:rate5m"
CACHED_SHARE = "model:vllm_prompt_tokens_cached_per_vllm_prompt_tokens:ratio_rate5m"
SOURCE_SHARE = "model_source:vllm_prompt_tokens_cached_by_source:share_rate5m"
REQUESTS = "model:vllm_time_to_first_token_seconds_count:rate5m"
TTFT_P50 = "model:vllm_time_to_first_token_seconds:p50_5m"
TTFT_P99 = "model:vllm_time_to_first_token_seconds:p99_5m"
KV_USAGE_MAX = "model:vllm_kv_cache_usage_perc:max"
KV_USAGE_MEAN = "model:vllm_kv_cache_usage_perc:mean"
DECODE_BATCH = "model:vllm_decode_batch_size:mean5m"
PREEMPTIONS = "model:vllm_num_preemptions:rate5m"
EVICTIONS = "model:vllm_kv_block_evictions_upper_bound:rate5m"

RATE_WINDOW = timedelta(minutes=5)
"""Fixed, since it stands in the names."""

_QUERIES = "vllm:prefix_cache_queries_total"
_HITS = "vllm:prefix_cache_hits_total"
_TTFT = "vllm:time_to_first_token_seconds"


def recording_rules(source: Source, parameters: Parameters) -> tuple[RecordingRule, ...]:
    """All recording rules of the first day, each behind the ones it reads."""
    return (
        *_hit_rate(source, parameters),
        *_warm_engines(source, parameters),
        *_past(parameters),
        *_tiers(source, parameters),
        *_latency(source, parameters),
        *_pressure(source, parameters),
    )


def _hit_rate(source: Source, parameters: Parameters) -> tuple[RecordingRule, ...]:
    return (
        RecordingRule(record=QUERIES, expr=_sum_rate(source, parameters, _QUERIES)),
        RecordingRule(record=HITS, expr=_sum_rate(source, parameters, _HITS)),
        RecordingRule(record=HIT_RATE, expr=guarded_ratio(HITS, QUERIES)),
        RecordingRule(record=HIT_RATE_FIELD_NAME, expr=HIT_RATE),
    )


def _warm_engines(source: Source, parameters: Parameters) -> tuple[RecordingRule, ...]:
    warm = _only_warm(source, parameters)

    def warm_sum(series: str) -> str:
        expr = chain(source.rate(series, RATE_WINDOW), *warm)
        return aggregate("sum", expr, without=parameters.replica_labels)

    engines = chain(source.vector(_QUERIES), *warm)
    return (
        RecordingRule(record=QUERIES_WARM, expr=warm_sum(_QUERIES)),
        RecordingRule(record=HITS_WARM, expr=warm_sum(_HITS)),
        RecordingRule(record=HIT_RATE_WARM, expr=guarded_ratio(HITS_WARM, QUERIES_WARM)),
        RecordingRule(
            record=WARM_ENGINES,
            expr=aggregate("count", engines, without=parameters.replica_labels),
        ),
        RecordingRule(record=FROZEN_ENGINES, expr=_frozen_engines(source, parameters)),
    )


def _only_warm(source: Source, parameters: Parameters) -> tuple[Step, ...]:
    """Keeps engines that were there a cold start ago and have not restarted since.

    Told from the counter itself: start times of processes and ``_created`` series vanish when
    several API servers share one page. A new engine has no past, a restarted one a reset.
    """
    span = parameters.cold_start
    existed = source.vector(_QUERIES, offset=span)
    restarts = call("resets", window(source.vector(_QUERIES), span))
    return also(existed), unless(parens(f"{restarts} > 0"))


def _frozen_engines(source: Source, parameters: Parameters) -> str:
    """Engines with traffic and a past of hits, but not one hit in the window.

    Counted, so that a frozen fleet is one alert and one frozen engine among many is not lost.
    """
    span, past = parameters.frozen_window, parameters.frozen_history
    tokens = number(parameters.min_query_tokens_per_second)
    requests = number(parameters.min_requests_per_second)
    history = guarded_ratio(
        source.rate(_HITS, past, offset=span), source.rate(_QUERIES, past, offset=span)
    )
    frozen = chain(
        parens(f"{source.rate(_HITS, span)} == 0"),
        also(parens(f"{source.rate(_QUERIES, span)} > {tokens}")),
        also(parens(binary(">", history, number(parameters.min_baseline_hit_rate)))),
        unless(parens(f"{source.rate(f'{_TTFT}_count', span)} < {requests}")),
        *_only_warm(source, parameters),
    )
    return aggregate("count", frozen, without=parameters.replica_labels)


def _past(parameters: Parameters) -> tuple[RecordingRule, ...]:
    """The own past, weighted by tokens: means of rates are divided, ratios are never averaged."""

    def mean(recorded: str) -> str:
        span, offset = parameters.baseline_window, parameters.baseline_offset
        return call("avg_over_time", window(recorded, span, offset=offset))

    since = parameters.baseline_offset + parameters.min_history
    history = window(QUERIES, parameters.baseline_window, offset=since)
    baseline = chain(
        parens(guarded_ratio(mean(HITS), mean(QUERIES))), also(call("present_over_time", history))
    )
    floor = number(parameters.min_baseline_hit_rate)
    return (
        RecordingRule(record=BASELINE, expr=baseline),
        RecordingRule(
            record=HIT_RATE_PER_BASELINE, expr=guarded_ratio(HIT_RATE_WARM, BASELINE, over=floor)
        ),
    )


def _tiers(source: Source, parameters: Parameters) -> tuple[RecordingRule, ...]:
    cached = _sum_rate(source, parameters, "vllm:prompt_tokens_cached_total")
    by_source = _sum_rate(source, parameters, "vllm:prompt_tokens_cached_by_source_total")
    matching = "ignoring (source) group_left ()"
    return (
        RecordingRule(
            record=PROMPT_TOKENS, expr=_sum_rate(source, parameters, "vllm:prompt_tokens_total")
        ),
        RecordingRule(record=CACHED_SHARE, expr=guarded_ratio(cached, PROMPT_TOKENS)),
        RecordingRule(
            record=SOURCE_SHARE, expr=guarded_ratio(by_source, PROMPT_TOKENS, match=matching)
        ),
    )


def _latency(source: Source, parameters: Parameters) -> tuple[RecordingRule, ...]:
    buckets = _sum_rate(source, parameters, f"{_TTFT}_bucket")

    def quantile(q: str) -> str:
        # A quantile of nothing is NaN: without a request there is no sample.
        return chain(call("histogram_quantile", buckets, first=q), also(parens(f"{REQUESTS} > 0")))

    return (
        RecordingRule(record=REQUESTS, expr=_sum_rate(source, parameters, f"{_TTFT}_count")),
        RecordingRule(record=TTFT_P50, expr=quantile("0.5")),
        RecordingRule(record=TTFT_P99, expr=quantile("0.99")),
    )


def _pressure(source: Source, parameters: Parameters) -> tuple[RecordingRule, ...]:
    usage = source.vector("vllm:kv_cache_usage_perc")
    replicas = parameters.replica_labels
    generated = _sum_rate(source, parameters, "vllm:generation_tokens_total")
    steps = _sum_rate(source, parameters, "vllm:iteration_tokens_total_count")
    reallocated = _sum_rate(source, parameters, "vllm:kv_block_lifetime_seconds_count")
    return (
        RecordingRule(record=KV_USAGE_MAX, expr=aggregate("max", usage, without=replicas)),
        RecordingRule(record=KV_USAGE_MEAN, expr=aggregate("avg", usage, without=replicas)),
        RecordingRule(record=DECODE_BATCH, expr=guarded_ratio(generated, steps)),
        RecordingRule(
            record=PREEMPTIONS, expr=_sum_rate(source, parameters, "vllm:num_preemptions_total")
        ),
        RecordingRule(
            record=EVICTIONS, expr=binary("/", reallocated, number(parameters.kv_block_sample))
        ),
    )


def _sum_rate(source: Source, parameters: Parameters, series: str) -> str:
    """Rate first, then sum: a sum of counters cannot see that one of them was reset."""
    return aggregate("sum", source.rate(series, RATE_WINDOW), without=parameters.replica_labels)
