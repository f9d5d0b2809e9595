"""Situations of the hit rate: a fall, a low level, too little traffic to tell."""

from __future__ import annotations

import math

from prefixctl.metrics import alerts, recording
from prefixctl.metrics.scenarios import (
    Bench,
    ExprTest,
    Scenario,
    one_alert,
    quiet,
)
from prefixctl.metrics.traffic import FLEET, Figures, Phase, whole_minutes


def _fleet_fall(bench: Bench, f: Figures) -> Scenario:
    at = f.lead + f.hold
    traffic = (f.good(f.lead), f.bad(f.hold + 10, f.fallen))
    value = f"{f.fallen / f.high * 100:.4g}%"
    return Scenario(
        name=f"hit rate {f.high:.0%} to {f.fallen:.0%} on 4 engines: one alert, not four",
        input_series=tuple(s for engine in FLEET for s in bench.cache(engine, *traffic)),
        alerts=(bench.fires(alerts.HIT_RATE_DROPPED, at, value=value),),
        exprs=(*quiet(f.lead), one_alert(at)),
    )


def _short_dip(bench: Bench, f: Figures) -> Scenario:
    # The rate window makes a dip longer by itself; a short wait leaves room for none.
    wait = bench.parameters.hold - recording.RATE_WINDOW
    dip = max(0, whole_minutes(wait) - 1)
    traffic = (f.good(f.lead), f.bad(dip, f.fallen), f.good(30))
    minutes = (f.lead + dip - 1, f.lead + dip + 3, f.lead + dip + 6, f.lead + dip + 15)
    return Scenario(
        name=f"a dip of {dip} minutes is no alert",
        input_series=bench.cache(0, *traffic),
        exprs=quiet(*minutes),
    )


def _low_from_the_start(bench: Bench, f: Figures) -> Scenario:
    level = math.floor(bench.parameters.low_hit_rate * 50) / 100
    at = f.cold + f.hold + 1
    return Scenario(
        name="a hit rate that was never high is low, and did not drop",
        input_series=bench.cache(0, f.bad(at + 10, level)),
        alerts=(bench.fires(alerts.HIT_RATE_LOW, at, value=f"{level * 100:.4g}%"),),
        exprs=(*quiet(f.cold - 1), one_alert(at)),
    )


def _little_traffic(bench: Bench, f: Figures) -> Scenario:
    tokens = math.floor(bench.parameters.min_query_tokens_per_second * 30)
    end = f.lead + 2 * f.hold
    return Scenario(
        name="a low hit rate below the traffic guard is no alert",
        input_series=bench.cache(0, f.good(f.lead), Phase(minutes=f.hold * 2 + 1, tokens=tokens)),
        exprs=quiet(end - f.hold + 6, end),
    )


def _few_requests(bench: Bench, f: Figures) -> Scenario:
    slow = bench.parameters.min_requests_per_second * 60 / 10
    phases = (f.good(f.lead), f.bad(f.hold + 10))
    count = bench.counter(
        "vllm:time_to_first_token_seconds_count", 0, phases, lambda p: 60 if p.hit_rate else slow
    )
    return Scenario(
        name="many tokens in a few long requests are no alert",
        input_series=(*bench.cache(0, *phases), count),
        exprs=quiet(f.lead + f.hold, f.lead + f.hold + 9),
    )


def _idle_after_traffic(bench: Bench, f: Figures) -> Scenario:
    idle = f.lead + 30
    absent = (recording.HIT_RATE, recording.HIT_RATE_FIELD_NAME, recording.HIT_RATE_WARM)
    return Scenario(
        name="idle for 30 minutes after traffic: no alert, no ratio",
        input_series=bench.cache(0, f.good(f.lead), Phase(minutes=31)),
        exprs=(
            *quiet(f.lead + 10, f.lead + 20, idle),
            *(ExprTest(minute=idle, expr=name) for name in absent),
        ),
    )


SITUATIONS = (
    _fleet_fall,
    _short_dip,
    _low_from_the_start,
    _little_traffic,
    _few_requests,
    _idle_after_traffic,
)
