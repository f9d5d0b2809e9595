"""Traffic of the generated unit tests: phases at one engine, and figures that suit the parameters.

Times and hit rates follow from the parameters, so that the tests hold for changed thresholds too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from prefixctl.metrics.parameters import Parameters
from prefixctl.metrics.recording import RATE_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of steady traffic at one engine.

    Attributes:
        minutes: Its length; 0 leaves it out.
        tokens: Queried prompt tokens a minute.
        hit_rate: Share of them found in the cache.
        restart: The counters begin again at 0.
        absent: The engine is not there.
    """

    minutes: int
    tokens: int = 0
    hit_rate: float = 0.0
    restart: bool = False
    absent: bool = False


FLEET = range(4)
"""The engines of a fleet."""

Step = Callable[[Phase], float]
"""How much a counter grows a minute in a phase."""


def counter_values(phases: Sequence[Phase], step: Step) -> str:
    """The values of a counter through the phases. A phase of n minutes has n samples."""
    parts: list[str] = []
    value: float | None = None
    for phase in phases:
        if phase.minutes == 0:
            continue
        if phase.absent:
            parts.append("stale" if value is not None else "_")
            parts.extend([f"_x{phase.minutes - 1}"] * (phase.minutes > 1))
            continue
        growth = step(phase)
        first = 0 if value is None or phase.restart else value + growth
        value = first + growth * (phase.minutes - 1)
        parts.append(f"{first:.12g}+{growth:.12g}x{phase.minutes - 1}")
    return " ".join(parts)


def whole_minutes(span: timedelta) -> int:
    """A time span in minutes, rounded up."""
    return -int(-span.total_seconds() // 60)


def hits_of(phase: Phase) -> float:
    """Hit tokens a minute."""
    return round(phase.tokens * phase.hit_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Times in minutes, traffic and hit rates that suit the parameters.

    Attributes:
        tokens: Queried tokens a minute of a busy engine; 1e5 in 5 minutes unless the guard is
            higher.
        high: A healthy hit rate.
        fallen: A hit rate that has fallen too far from it.
        lead: How long a scenario runs well, until all engines are warm and have a past.
        cold: The cold start.
        hold: From a change in traffic until its alert: the rate window and the wait.
    """

    tokens: int
    high: float
    fallen: float
    lead: int
    cold: int
    hold: int

    def good(self, minutes: int) -> Phase:
        """Busy, with a healthy hit rate."""
        return Phase(minutes=minutes, tokens=self.tokens, hit_rate=self.high)

    def bad(self, minutes: int, hit_rate: float = 0.0, *, restart: bool = False) -> Phase:
        """Busy, with few hits or none."""
        return Phase(minutes=minutes, tokens=self.tokens, hit_rate=hit_rate, restart=restart)


def figures(parameters: Parameters) -> Figures:
    """The figures for these parameters."""
    p = parameters
    high = max(0.8, (1 + max(p.low_hit_rate, p.min_baseline_hit_rate)) / 2)
    history = whole_minutes(p.baseline_offset + p.min_history)
    cold = whole_minutes(p.cold_start)
    return Figures(
        tokens=max(20_000, math.ceil(p.min_query_tokens_per_second * 2.4) * 100),
        high=high,
        fallen=min(0.3, math.floor(90 * high * (1 - p.max_hit_rate_loss)) / 100),
        lead=max(60, max(history, cold) + 15),
        cold=cold,
        hold=whole_minutes(RATE_WINDOW + p.hold),
    )
