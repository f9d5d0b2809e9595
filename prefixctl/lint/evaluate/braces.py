"""What text with ``{{ }}`` prints that is no Jinja2: Handlebars and home-made placeholders."""

from __future__ import annotations

import re

from prefixctl.core.findings import Confidence
from prefixctl.lint.evaluate.names import cause_of, guess_name
from prefixctl.lint.evaluate.value import (
    Cause,
    CauseKind,
    Hole,
    Site,
    Value,
    choose,
    concat,
    hole_value,
    holes_value,
    loop,
    text_value,
)

_MARK = re.compile(
    r"\{\{\{?[-~]?(?P<body>!--(?:(?!--|\{\{).)*--|(?:(?!\{\{|\}\}).)*)\}\}\}?"
    r"|\{%(?:(?!\{%|%\}).)*%\}",
    re.DOTALL,
)
MAX_OPEN = 50
"""Block helpers inside block helpers at most; deeper ones are read as flat text."""
_WORD = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s=|()]+")
_NAME = re.compile(r"[@$]?[^\W\d][\w.\-/\[\]]*")
_CONTROL = frozenset(["if", "unless", "each", "with", "else", "this", "end", "for", "in", "role"])


def read_braces(text: str) -> Value:
    """The text and holes of a text with double braces."""
    open_values: list[list[Value]] = [[]]
    openers: list[tuple[str, tuple[Hole, ...]]] = []
    at = 0
    for mark in _MARK.finditer(text):
        open_values[-1].append(text_value(text[at : mark.start()]))
        at = mark.end()
        body = (mark["body"] or "").strip("~- \t\n}")
        if body.startswith("#") and len(openers) < MAX_OPEN:
            words = body[1:].split()
            holes = _holes(" ".join(words[1:]), mark.start())
            openers.append((words[0] if words else "", holes))
            open_values.append([])
        elif body.startswith("/") and openers:
            _close(open_values, openers)
        elif body and body[0] not in "!>/#^" and body not in _CONTROL:
            open_values[-1].append(_printed(body, mark.start()))
    open_values[-1].append(text_value(text[at:]))
    while openers:
        _close(open_values, openers)
    return concat(open_values[0])


def _close(open_values: list[list[Value]], openers: list[tuple[str, tuple[Hole, ...]]]) -> None:
    inner = concat(open_values.pop())
    word, holes = openers.pop()
    if word == "each":
        dynamic = any(h.cause.volatility is not None for h in holes)
        own = holes_value(h for h in holes if dynamic)
        open_values[-1].append(loop(concat([own, inner]), dynamic=dynamic, conversation=False))
    else:
        open_values[-1].append(choose([inner, Value()], ()))


def _printed(body: str, offset: int) -> Value:
    holes = _holes(body, offset)
    if holes:
        return holes_value(holes)
    cause = Cause(body[:60], CauseKind.UNKNOWN, None, Confidence.LOW, "it is no expression")
    place = Site(1, offset=offset)
    return hole_value(Hole(cause, place, place)) if '"' not in body else Value()


def _holes(body: str, offset: int) -> tuple[Hole, ...]:
    """The holes of ``helper argument argument``; a helper counts if its name says something."""
    words = [w for w in _WORD.findall(body) if w[0] not in "\"'"]
    names = [w.lstrip("@$").replace("/", ".") for w in words if _NAME.fullmatch(w)]
    if len(words) > 1 and names and guess_name(names[0]).volatility is None:
        names = names[1:]
    place = Site(1, offset=offset)
    return tuple(Hole(cause_of(n), place, place) for n in names if n and n not in _CONTROL)
