"""Builders of PromQL text: one place for ranges, guards and layout.

An operand stands two columns in, its operator at the margin, as in the rule style of the
Prometheus project. Builders take and return plain text, so an expression can be printed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def duration(span: timedelta) -> str:
    """A time span as Prometheus writes it, in the largest unit that divides it: 5m, 1d, 90s.

    Raises:
        ValueError: If it is not a positive number of whole seconds.
    """
    seconds = span.total_seconds()
    if seconds <= 0 or seconds != int(seconds):
        raise ValueError(f"not a positive number of whole seconds: {span}")
    unit, size = next((u, s) for u, s in _UNITS if seconds % s == 0)
    return f"{int(seconds) // size}{unit}"


def number(value: float) -> str:
    """A number without noise: 0.4, 20, 1e-05."""
    return f"{value:.10g}"


def call(function: str, vector: str, *, first: str | None = None) -> str:
    """A function call, with a leading scalar argument for those that take one."""
    return f"{function}({vector})" if first is None else f"{function}({first}, {vector})"


def window(vector: str, span: timedelta, *, offset: timedelta | None = None) -> str:
    """A range of a plain vector: ``x[5m]``, ``x[1d] offset 30m``."""
    past = "" if offset is None else f" offset {duration(offset)}"
    return f"{vector}[{duration(span)}]{past}"


def aggregate(operator: str, expr: str, *, without: Sequence[str]) -> str:
    """Aggregate the named labels away; all others survive."""
    return f"{operator} without ({', '.join(without)}) {parens(expr, broken=True)}"


def aggregate_by(operator: str, expr: str, *, by: Sequence[str]) -> str:
    """Aggregate all labels away but the named ones: for series whose labels change by release."""
    return f"{operator} by ({', '.join(by)}) {parens(expr, broken=True)}"


def binary(operator: str, *operands: str) -> str:
    """Operands joined by one operator, evaluated from left to right."""
    return f"\n{operator}\n".join(_indent(operand) for operand in operands)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One link of a chain of set operators."""

    operator: str
    operand: str


def also(operand: str) -> Step:
    """Keep what the operand has as well."""
    return Step(operator="and", operand=operand)


def unless(operand: str) -> Step:
    """Drop what the operand has."""
    return Step(operator="unless", operand=operand)


def chain(first: str, *steps: Step) -> str:
    """Set operators from left to right; ``and`` and ``unless`` bind equally."""
    lines = [_indent(first)]
    for step in steps:
        lines += [step.operator, _indent(step.operand)]
    return "\n".join(lines)


def parens(expr: str, *, broken: bool = False) -> str:
    """An expression in parentheses, on lines of its own if it has several (or ``broken``)."""
    if broken or "\n" in expr:
        return f"(\n{_indent(expr)}\n)"
    return f"({expr})"


def guarded_ratio(numerator: str, denominator: str, *, over: str = "0", match: str = "") -> str:
    """A ratio that has no value, instead of NaN, where its denominator is not above ``over``.

    Args:
        numerator: Already aggregated, see below.
        denominator: Aggregated on its own: a mean of ratios would weigh a request of ten tokens
            like one of ten thousand.
        over: What the denominator must exceed.
        match: Vector matching behind the operator, for a numerator with more labels.
    """
    operator = f"/ {match}".rstrip()
    return binary(operator, numerator, parens(f"{denominator} > {over}"))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
