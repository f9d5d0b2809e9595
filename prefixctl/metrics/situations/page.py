"""The series of one engine's metrics page, for situations that need more than queries and hits."""

from __future__ import annotations

from prefixctl.metrics.promql import number
from prefixctl.metrics.scenarios import Bench, InputSeries
from prefixctl.metrics.traffic import Phase

TTFT = "vllm:time_to_first_token_seconds"
REQUESTS_PER_MINUTE = 60


def page(bench: Bench, engine: int, *phases: Phase) -> tuple[InputSeries, ...]:
    """Everything that the rules read of an engine, sane in every respect."""
    minutes = sum(phase.minutes for phase in phases)
    flat = f"x{minutes - 1}"
    tokens, hits = bench.cache(engine, *phases)

    def counter(series: str, share: float, **extra: str) -> InputSeries:
        return bench.counter(series, engine, phases, lambda p: p.tokens * share, **extra)

    return (
        tokens,
        hits,
        counter("vllm:prompt_tokens_total", 1),
        counter("vllm:prompt_tokens_cached_total", 0.75),
        counter("vllm:prompt_tokens_cached_by_source_total", 0.5, source="device"),
        counter("vllm:prompt_tokens_cached_by_source_total", 0.25, source="host"),
        counter("vllm:generation_tokens_total", 0.5),
        counter("vllm:iteration_tokens_total_count", 0.125),
        counter("vllm:kv_block_lifetime_seconds_count", 0.003),
        bench.counter("vllm:num_preemptions_total", engine, phases, lambda _: 0),
        bench.series("vllm:kv_cache_usage_perc", engine, f"0.5+0{flat}"),
        config(bench, engine, "True", flat),
    )


def config(bench: Bench, engine: int, caching: str, flat: str) -> InputSeries:
    """The settings of an engine; ``flat`` is how long, as in ``x59``."""
    settings = {"enable_prefix_caching": caching, "num_gpu_blocks": str(4000 + engine)}
    return bench.series("vllm:cache_config_info", engine, f"1+0{flat}", **settings)


def ttft(bench: Bench, engine: int, le: float, *phases: Phase) -> tuple[InputSeries, ...]:
    """Requests that all get their first token between half of a bucket's bound and the bound."""

    def count(phase: Phase) -> float:
        return REQUESTS_PER_MINUTE if phase.tokens else 0

    bounds = {number(le / 2): False, number(le): True, "+Inf": True}
    buckets = (
        bench.counter(f"{TTFT}_bucket", engine, phases, count if full else lambda _: 0, le=bound)
        for bound, full in bounds.items()
    )
    return (*buckets, bench.counter(f"{TTFT}_count", engine, phases, count))
