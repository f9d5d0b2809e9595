"""Situations in which hits stop while queries go on, and one that only looks like it."""

from __future__ import annotations

from prefixctl.metrics import alerts, recording
from prefixctl.metrics.scenarios import Bench, ExprTest, Sample, Scenario, one_alert, quiet
from prefixctl.metrics.traffic import FLEET, Figures, Phase, whole_minutes


def _frozen_after_an_hour(bench: Bench, f: Figures) -> Scenario:
    before = max(0.6, (1 + bench.parameters.min_baseline_hit_rate) / 2)
    window = whole_minutes(bench.parameters.frozen_window)
    at = f.lead + window
    phases = (Phase(minutes=f.lead + 1, tokens=f.tokens, hit_rate=before), f.bad(window + 30))
    return Scenario(
        name=f"an hour at {before:.0%}, then queries without one hit for {window} minutes",
        input_series=bench.cache(0, *phases),
        alerts=(
            bench.silent(alerts.HITS_FROZEN, at - 2),
            bench.fires(alerts.HITS_FROZEN, at, value="1"),
            bench.silent(alerts.HIT_RATE_DROPPED, at + 20),
            bench.silent(alerts.HIT_RATE_LOW, at + 20),
        ),
        exprs=(*quiet(f.lead), one_alert(at), one_alert(at + 20)),
    )


def _one_engine_frozen(bench: Bench, f: Figures) -> Scenario:
    window = whole_minutes(bench.parameters.frozen_window)
    at = f.lead + window
    frozen = (f.good(f.lead + 1), f.bad(window + 10))
    steady = (f.good(f.lead + window + 11),)
    fleet = (bench.cache(i, *(frozen if i == 0 else steady)) for i in FLEET)
    return Scenario(
        name="hits stop on one engine of four",
        input_series=tuple(s for engine in fleet for s in engine),
        alerts=(bench.fires(alerts.HITS_FROZEN, at, value="1"),),
        exprs=(*quiet(f.lead), one_alert(at)),
    )


def _fleet_frozen(bench: Bench, f: Figures) -> Scenario:
    window = whole_minutes(bench.parameters.frozen_window)
    at = f.lead + window
    phases = (f.good(f.lead + 1), f.bad(window + 10))
    return Scenario(
        name="hits stop on all engines: one alert",
        input_series=tuple(s for engine in FLEET for s in bench.cache(engine, *phases)),
        alerts=(bench.fires(alerts.HITS_FROZEN, at, value=str(len(FLEET))),),
        exprs=(one_alert(at),),
    )


def _cold_start_without_hits(bench: Bench, f: Figures) -> Scenario:
    end = f.cold + f.hold + 20
    return Scenario(
        name="a new engine without any hit is low in the end, never frozen",
        input_series=bench.cache(0, f.bad(end + 1)),
        alerts=(
            bench.silent(alerts.HITS_FROZEN, f.cold),
            bench.silent(alerts.HITS_FROZEN, end),
            bench.fires(alerts.HIT_RATE_LOW, end, value="0%"),
        ),
        exprs=quiet(15, f.cold),
    )


def _restart_without_hits(bench: Bench, f: Figures) -> Scenario:
    phases = (f.good(f.lead), f.bad(f.cold, restart=True))
    return Scenario(
        name="a restarted engine without any hit yet is not frozen",
        input_series=bench.cache(0, *phases),
        exprs=quiet(f.lead + f.cold // 2, f.lead + f.cold - 1),
    )


def _both_stop(bench: Bench, f: Figures) -> Scenario:
    at = f.lead + whole_minutes(bench.parameters.frozen_window)
    return Scenario(
        name="hits and queries stop together: idle, not frozen",
        input_series=bench.cache(0, f.good(f.lead), Phase(minutes=60)),
        exprs=(*quiet(at, at + 20), ExprTest(minute=at, expr=recording.FROZEN_ENGINES)),
    )


def _created_is_no_count(bench: Bench, f: Figures) -> Scenario:
    born = [
        bench.created(series, 0, f"1.75e+09+0x{f.lead}")
        for series in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    ]
    labels = bench.model_labels()
    return Scenario(
        name="_created series are timestamps and never counted",
        input_series=(*bench.cache(0, f.good(f.lead + 1)), *born),
        exprs=(
            *quiet(f.lead),
            bench.recorded(recording.QUERIES, f.lead, f.tokens / 60),
            bench.recorded(recording.HIT_RATE, f.lead, f.high),
            ExprTest(
                minute=f.lead,
                expr=recording.WARM_ENGINES,
                samples=(Sample.of(recording.WARM_ENGINES, labels, 1),),
            ),
        ),
    )


SITUATIONS = (
    _frozen_after_an_hour,
    _one_engine_frozen,
    _fleet_frozen,
    _cold_start_without_hits,
    _restart_without_hits,
    _both_stop,
    _created_is_no_count,
)
