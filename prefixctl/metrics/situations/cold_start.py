"""Situations around a start of engines: deploys, restarts, counter resets."""

from __future__ import annotations

from prefixctl.metrics import alerts, recording
from prefixctl.metrics.scenarios import (
    Bench,
    ExprTest,
    Scenario,
    firing,
    one_alert,
    quiet,
)
from prefixctl.metrics.traffic import FLEET, Figures, Phase


def _restart(bench: Bench, f: Figures) -> Scenario:
    gone = Phase(minutes=2, absent=True)
    traffic = (f.good(f.lead), gone, f.bad(f.cold - 5, 0.02, restart=True), f.good(60))
    start = f.lead + 2
    minutes = (start + f.hold, start + f.cold - 5, start + f.cold + 5, start + f.cold + 50)
    return Scenario(
        name="cold start after a restart in place is inhibited on all engines",
        input_series=tuple(s for engine in FLEET for s in bench.cache(engine, *traffic)),
        exprs=quiet(start + 5, *minutes),
    )


def _redeploy(bench: Bench, f: Figures) -> Scenario:
    old = bench.cache(0, f.good(f.lead), Phase(minutes=1, absent=True))
    cold = f.bad(f.cold - 5, 0.02)
    new = bench.cache(1, Phase(minutes=f.lead, absent=True), cold, f.good(60))
    minutes = (f.lead + f.hold, f.lead + f.cold - 5, f.lead + f.cold + 5, f.lead + f.cold + 50)
    return Scenario(
        name="cold start of new instances after a deploy is inhibited",
        input_series=(*old, *new),
        exprs=quiet(f.lead + 5, *minutes),
    )


def _rolling_restart(bench: Bench, f: Figures) -> Scenario:
    restarted = (f.good(f.lead), f.bad(f.cold - 5, restart=True), f.good(30))
    steady = (f.good(f.lead + f.cold + 25),)
    fleet = (bench.cache(i, *(restarted if i == 0 else steady)) for i in FLEET)
    return Scenario(
        name="one cold engine of four does not count against the others",
        input_series=tuple(s for engine in fleet for s in engine),
        exprs=(
            *quiet(f.lead + f.hold, f.lead + f.cold - 5, f.lead + f.cold + 20),
            bench.recorded(recording.HIT_RATE_WARM, f.lead + 10, f.high),
        ),
    )


def _late_restart(bench: Bench, f: Figures) -> Scenario:
    at = f.lead + f.cold + f.hold + 2
    traffic = (f.good(f.lead), f.bad(at - f.lead + 10, f.fallen / 2, restart=True))
    return Scenario(
        name="a hit rate that has not come back after the cold start is an alert",
        input_series=bench.cache(0, *traffic),
        exprs=(
            *quiet(f.lead + f.cold - 1),
            firing(alerts.HIT_RATE_DROPPED, at),
            one_alert(at),
        ),
    )


def _counter_reset(bench: Bench, f: Figures) -> Scenario:
    again = Phase(minutes=60, tokens=f.tokens, hit_rate=f.high, restart=True)
    end = f.lead + 59
    ceiling = f.tokens / 60 * 1.001
    return Scenario(
        name="a counter reset is no spike",
        input_series=bench.cache(0, f.good(f.lead), again),
        exprs=(
            *quiet(f.lead + 1, f.lead + f.hold, end),
            ExprTest(
                minute=end,
                expr=f"max_over_time({recording.QUERIES}[{end}m]) > {ceiling:.10g}",
            ),
            ExprTest(minute=end, expr=f"max_over_time({recording.HIT_RATE}[{end}m]) > 1"),
            bench.recorded(recording.QUERIES, end, f.tokens / 60),
        ),
    )


SITUATIONS = (
    _restart,
    _redeploy,
    _rolling_restart,
    _late_restart,
    _counter_reset,
)
