"""Clock values: functions that read the clock, and what cuts their resolution."""

from __future__ import annotations

from dataclasses import replace

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate.formats import format_volatility, slice_volatility
from prefixctl.lint.evaluate.value import EMPTY, Cause, CauseKind, Value, map_causes

FORMAT_METHODS = frozenset(["strftime", "format_date", "format_datetime", "strftime_now"])
FORMAT_FILTERS = frozenset(
    ["strftime", "date", "time", "datetime", "dateformat", "datetimeformat", "format_date",
     "format_datetime", "format_time"]
)  # fmt: skip
_ATTRIBUTES = {
    "hour": Volatility.HOUR,
    "minute": Volatility.MINUTE,
    "date": Volatility.DAY,
    "today": Volatility.DAY,
    "day": Volatility.DAY,
    "month": Volatility.DAY,
    "year": Volatility.DAY,
    "weekday": Volatility.DAY,
    "isoweekday": Volatility.DAY,
    "toordinal": Volatility.DAY,
}


def clock_cause(function: str, pattern: str | None) -> Cause:
    """What a function that prints the time in a format is.

    Args:
        function: Its name.
        pattern: The format; None if it is not known, which counts as seconds.
    """
    volatility = Volatility.SECOND if pattern is None else format_volatility(pattern)
    reason = "it prints the time" if pattern is None else f"its format is '{pattern}'"
    return Cause(function, CauseKind.CLOCK, volatility, Confidence.HIGH, reason, fixed=True)


def formatted(value: Value, pattern: str | None) -> Value:
    """A value printed in a date format: its clocks change no more often than the format shows."""
    if pattern is None:
        return value
    return coarser(value, format_volatility(pattern), f"its format is '{pattern}'")


def attribute(value: Value, name: str) -> Value | None:
    """A clock's attribute (``now.hour``), or None if the name cuts nothing."""
    volatility = _ATTRIBUTES.get(name)
    if volatility is None or not any(h.cause.kind is CauseKind.CLOCK for h in value.holes):
        return None
    return coarser(value, volatility, f"'.{name}' is all that it shows")


def cut(value: Value, stop: int) -> Value:
    """The first characters of an ISO 8601 text: ``now[:10]`` is a day."""
    volatility = slice_volatility(stop)
    return value if volatility is None else coarser(value, volatility, f"it is cut at {stop}")


def coarser(value: Value, volatility: Volatility, reason: str) -> Value:
    """The value with no clock in it finer than given."""

    def change(cause: Cause) -> Cause:
        if cause.kind is not CauseKind.CLOCK or cause.volatility is None:
            return cause
        least = min(cause.volatility, volatility)
        return replace(cause, volatility=least, reason=reason, fixed=True)

    if volatility is Volatility.CONSTANT:
        return EMPTY if all(h.cause.kind is CauseKind.CLOCK for h in value.holes) else value
    return map_causes(value, change)
