"""Guesses upon guesses: what a name says of a string that may be no prompt, or a piece of one.

A string in a configuration file or in source code is taken for a prompt by its looks. A value in it
whose name only hints at what it is counts where much stands behind it.
"""

from __future__ import annotations

from dataclasses import replace

from prefixctl.core.findings import Confidence
from prefixctl.lint.evaluate.printf import alone
from prefixctl.lint.evaluate.prose import count_words
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Choice,
    Hole,
    Loop,
    Part,
    Text,
    Value,
    choose,
    concat,
    map_causes,
)

LEAST_WORDS = 60
"""Static words behind a value that make a guess upon a guess worth a finding."""


def without_doubts(value: Value, *, piece: bool) -> Value:
    """The value without the guesses that have little behind them.

    Args:
        value: What the string prints.
        piece: Whether code may join it to other strings, so that it is printed under conditions
            that are not seen here.
    """
    behind = 0
    kept: list[Value] = []
    for part in reversed(value.parts):
        one = alone(part)
        if behind < LEAST_WORDS:
            one = map_causes(one, _unknown, deciding=True)
        elif piece and isinstance(part, Hole) and _is_hint(part.cause):
            one = choose([map_causes(one, _maybe, deciding=True), EMPTY])
        kept.append(one)
        behind += _words(part)
    return concat(reversed(kept))


def _is_hint(cause: Cause) -> bool:
    return cause.volatility is not None and not cause.fixed and cause.confidence < Confidence.HIGH


def _unknown(cause: Cause) -> Cause:
    if not _is_hint(cause):
        return cause
    return replace(cause, kind=CauseKind.UNKNOWN, volatility=None, confidence=Confidence.LOW)


def _maybe(cause: Cause) -> Cause:
    reason = f"{cause.reason}; other code may join this text to more"
    return replace(cause, confidence=Confidence.LOW, reason=reason)


def _words(part: Part) -> int:
    if isinstance(part, Text):
        return count_words(part.text)
    if isinstance(part, Choice):
        return max((sum(map(_words, o.parts)) for o in part.options), default=0)
    return sum(map(_words, part.body.parts)) if isinstance(part, Loop) else 0
