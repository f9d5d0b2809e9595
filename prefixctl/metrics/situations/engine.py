"""Situations of a whole metrics page: idle, steady, slow, short of blocks, absent, switched off."""

from __future__ import annotations

from prefixctl.metrics import alerts, recording
from prefixctl.metrics.scenarios import Bench, ExprTest, Scenario, one_alert, quiet
from prefixctl.metrics.situations.page import REQUESTS_PER_MINUTE, config, page, ttft
from prefixctl.metrics.traffic import Figures, Phase, whole_minutes


def _idle(bench: Bench, f: Figures) -> Scenario:
    end = f.cold + f.hold + 15
    idle = Phase(minutes=end + 1)
    le = bench.parameters.ttft_p99_seconds
    nan = (
        ExprTest(minute=30, expr=f"{rule.record} != {rule.record}")
        for rule in bench.rules.recording_rules
    )
    absent = (recording.HIT_RATE, recording.CACHED_SHARE, recording.TTFT_P99)
    return Scenario(
        name="idle engines: no alert, no NaN, no ratio of nothing",
        input_series=(
            *(s for engine in range(2) for s in page(bench, engine, idle)),
            *ttft(bench, 0, le, idle),
        ),
        exprs=(
            *quiet(10, 30, end),
            *nan,
            *(ExprTest(minute=30, expr=name) for name in absent),
        ),
    )


def _steady(bench: Bench, f: Figures) -> Scenario:
    p, at, per_second = bench.parameters, f.lead, f.tokens / 60
    le = p.ttft_p99_seconds / 2
    values = {
        recording.QUERIES: 2 * per_second,
        recording.HITS: 2 * per_second * f.high,
        recording.HIT_RATE: f.high,
        recording.HIT_RATE_FIELD_NAME: f.high,
        recording.HIT_RATE_WARM: f.high,
        recording.BASELINE: f.high,
        recording.HIT_RATE_PER_BASELINE: 1,
        recording.WARM_ENGINES: 2,
        recording.PROMPT_TOKENS: 2 * per_second,
        recording.CACHED_SHARE: 0.75,
        recording.REQUESTS: 2 * REQUESTS_PER_MINUTE / 60,
        recording.TTFT_P50: le * 0.75,
        recording.TTFT_P99: le * 0.995,
        recording.KV_USAGE_MAX: 0.5,
        recording.KV_USAGE_MEAN: 0.5,
        recording.DECODE_BATCH: 4,
        recording.PREEMPTIONS: 0,
        recording.EVICTIONS: 2 * per_second * 0.003 / p.kv_block_sample,
    }
    traffic = f.good(at + f.hold + 1)
    pages = (page(bench, i, traffic) + ttft(bench, i, le, traffic) for i in range(2))
    return Scenario(
        name="steady traffic: every recorded value, no alert",
        input_series=tuple(s for one in pages for s in one),
        exprs=(
            *quiet(at, at + f.hold),
            *(bench.recorded(name, at, value) for name, value in values.items()),
            bench.recorded(recording.SOURCE_SHARE, at, 0.5, source="device"),
            bench.recorded(recording.SOURCE_SHARE, at, 0.25, source="host"),
        ),
    )


def _slow(bench: Bench, f: Figures) -> Scenario:
    at, le = f.lead + f.hold, bench.parameters.ttft_p99_seconds * 2
    phases = (Phase(minutes=f.lead), f.good(f.hold + 10))
    value = f"{le * 0.995:.4g}"
    return Scenario(
        name="the time to first token is above its bound",
        input_series=(*bench.cache(0, *phases), *ttft(bench, 0, le, *phases)),
        alerts=(bench.fires(alerts.TTFT_HIGH, at, value=value),),
        exprs=(*quiet(f.lead), one_alert(at)),
    )


def _slow_while_cold(bench: Bench, f: Figures) -> Scenario:
    le = bench.parameters.ttft_p99_seconds * 2
    phases = (f.good(f.cold),)
    return Scenario(
        name="the time to first token of a cold start is no alert",
        input_series=(*bench.cache(0, *phases), *ttft(bench, 0, le, *phases)),
        exprs=quiet(*range(5, f.cold, 5)),
    )


def _preempting(bench: Bench, f: Figures) -> Scenario:
    rate = round(bench.parameters.max_preemptions_per_second * 4, 2)
    phases = (f.good(f.hold + 10),)
    counter = bench.counter("vllm:num_preemptions_total", 0, phases, lambda _: rate * 60)
    usage = bench.series("vllm:kv_cache_usage_perc", 0, f"1+0x{f.hold + 9}")
    return Scenario(
        name="preemptions are an alert, and the full pool behind them no second one",
        input_series=(*bench.cache(0, *phases), counter, usage),
        alerts=(
            bench.fires(alerts.PREEMPTING, f.hold, value=f"{rate:.2f}"),
            bench.silent(alerts.KV_PRESSURE, f.hold + 9),
        ),
        exprs=(one_alert(f.hold),),
    )


def _full_pool(bench: Bench, f: Figures) -> Scenario:
    usage = round((1 + bench.parameters.max_kv_usage) / 2, 3)
    traffic = f.good(f.hold + 10)
    levels = (usage, 0.5)
    pool = "vllm:kv_cache_usage_perc"
    return Scenario(
        name="live requests fill the pool of one engine",
        input_series=(
            *(s for i in range(len(levels)) for s in bench.cache(i, traffic)),
            *(bench.series(pool, i, f"{x}+0x{f.hold + 9}") for i, x in enumerate(levels)),
        ),
        alerts=(bench.fires(alerts.KV_PRESSURE, f.hold, value=f"{usage * 100:.4g}%"),),
        exprs=(one_alert(f.hold),),
    )


def _absent(bench: Bench, f: Figures) -> Scenario:
    wait = whole_minutes(bench.parameters.hold)
    gone = Phase(minutes=wait + 10, absent=True)
    return Scenario(
        name="the engine's metrics disappear",
        input_series=bench.cache(0, f.good(30), gone),
        alerts=(
            bench.silent(alerts.METRICS_ABSENT, 30),
            bench.fires(alerts.METRICS_ABSENT, 31 + wait, labels=bench.absent_labels()),
        ),
        exprs=(*quiet(29), one_alert(31 + wait)),
    )


def _switched_off(bench: Bench, f: Figures) -> Scenario:
    end = f.hold
    labels = {
        name: text
        for name, text in bench.engine_labels(0).items()
        if name in alerts.DEPLOYMENT_LABELS
    }
    return Scenario(
        name="prefix caching is switched off on two engines: one alert",
        input_series=(
            *(s for i in range(2) for s in bench.cache(i, Phase(minutes=end + 1))),
            *(config(bench, i, "False", f"x{end}") for i in range(2)),
        ),
        alerts=(bench.fires(alerts.DISABLED, end, value="2", labels=labels),),
        exprs=(one_alert(end),),
    )


SITUATIONS = (
    _idle,
    _steady,
    _slow,
    _slow_while_cold,
    _preempting,
    _full_pool,
    _absent,
    _switched_off,
)
