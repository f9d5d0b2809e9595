"""What text with ``{{ }}`` prints that is no Jinja2: Handlebars, Mustache, Semantic Kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from prefixctl.core.findings import Confidence
from prefixctl.lint.evaluate import order
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
    map_causes,
    text_value,
)
from prefixctl.lint.source import UnreadableError

_MARK = re.compile(
    r"\{\{\{?[-~]?(?P<body>!--(?:(?!--|\{\{).)*--|(?:(?!\{\{|\}\}).)*)\}\}\}?"
    r"|\{%(?:(?!\{%|%\}).)*%\}",
    re.DOTALL,
)
MAX_OPEN = 50
"""Block helpers inside block helpers at most; deeper ones are read as flat text."""
_WORD = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s=|()]+")
_NAME = re.compile(r"[@$.]{0,2}[^\W\d][\w.\-/\[\]]*")
_CONTROL = frozenset(["if", "unless", "each", "with", "else", "this", "end", "for", "in", "role"])
_LOOPS = frozenset(["each", "range"])
_GO_BLOCKS = frozenset(["if", "range", "with"])
_ROLE = re.compile(r"(?:^|[\s.@\"'=])[rR]ole\}?\Z")
_UNGUARDED = frozenset(
    ["with", "message", "system", "user", "assistant", "role", "block", "section", "raw", "set"]
)
"""Block helpers that print their body whatever the values are."""


@dataclass(slots=True)
class _Open:
    """A block helper that is open.

    Attributes:
        word: Its word.
        holes: What it reads.
        turns: Whether it prints the role of what it goes through: the turns of a conversation.
        branches: What was read so far, of each branch.
    """

    word: str
    holes: tuple[Hole, ...]
    turns: bool = False
    branches: list[list[Value]] = field(default_factory=lambda: [[]])

    def value(self) -> Value:
        """What the whole block prints."""
        bodies = [concat(b) for b in self.branches]
        if self.word in _LOOPS:
            dynamic = any(h.cause.volatility is not None for h in self.holes)
            own = holes_value(h for h in self.holes if dynamic)
            if self.turns and dynamic:
                turns = loop(map_causes(bodies[0], _as_turn), dynamic=False, conversation=True)
                return concat([turns, own])
            rounds = loop(concat([own, bodies[0]]), dynamic=dynamic, conversation=False)
            listed = map_causes(holes_value(self.holes), order.list_unordered)
            unsorted = [h for h in listed.holes if h.cause.kind is CauseKind.ORDER]
            whole = choose([rounds, *bodies[1:]]) if bodies[1:] else rounds
            return concat([holes_value(unsorted), whole])
        if self.word in _UNGUARDED:
            return concat(bodies)
        return choose(bodies if len(bodies) > 1 else [*bodies, Value()], ())


def read_braces(text: str) -> Value:
    """The text and holes of a text with double braces."""
    top = _Open("", ())
    stack = [top]
    at = 0
    for mark in _MARK.finditer(text):
        stack[-1].branches[-1].append(text_value(text[at : mark.start()]))
        at = mark.end()
        body = (mark["body"] or "").strip("~- \t\n}")
        stack[-1].turns |= _ROLE.search(body) is not None
        opening = _opening(body)
        if opening and len(stack) <= MAX_OPEN:
            word, _, arguments = opening.partition(" ")
            stack.append(_Open(word, _holes(arguments, mark.start())))
        elif (body.startswith("/") or body == "end") and len(stack) > 1:
            _close(stack)
        elif (body == "^" or body.split(" ", 1)[0] == "else") and len(stack) > 1:
            stack[-1].branches.append([])
        elif body and body[0] not in "!>/#^" and body not in _CONTROL:
            stack[-1].branches[-1].append(_printed(body, mark.start()))
    stack[-1].branches[-1].append(text_value(text[at:]))
    while len(stack) > 1:
        _close(stack)
    return concat(top.branches[0])


def _opening(body: str) -> str:
    """The words of a mark that opens a block: ``#each xs``, ``^xs``, Go's ``range .Xs``."""
    if body[:1] in {"#", "^"}:
        return body[1:].strip("*> \t\n")
    word, _, rest = body.partition(" ")
    return body if word in _GO_BLOCKS and rest[:1] in {".", "$", "("} else ""


def _as_turn(cause: Cause) -> Cause:
    return replace(
        cause,
        kind=CauseKind.CONVERSATION,
        volatility=None,
        confidence=Confidence.HIGH,
        reason="it is the conversation",
    )


def check_blocks(text: str) -> None:
    """Check that every block helper is closed by its own end.

    Raises:
        UnreadableError: With the line of the first one that is not.
    """
    stack: list[tuple[str, int]] = []
    line, at = 1, 0
    for mark in _MARK.finditer(text):
        line += text.count("\n", at, mark.start())
        at = mark.start()
        body = (mark["body"] or "").strip("~- \t\n}")
        if body[:1] in {"#", "^"} and (words := _opening(body).split()):
            stack.append((words[0], line))
        elif body.startswith("/"):
            name = body[1:].strip()
            if not stack or stack[-1][0] != name:
                opened = f", but '{stack[-1][0]}' is open" if stack else ""
                raise UnreadableError(
                    f"broken template: '/{name}' closes nothing{opened}", line=line
                )
            stack.pop()
    if stack:
        name, line = stack[-1]
        raise UnreadableError(f"broken template: '#{name}' is never closed", line=line)


def _close(stack: list[_Open]) -> None:
    closed = stack.pop()
    stack[-1].branches[-1].append(closed.value())


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
    names = [w.lstrip("@$.").replace("/", ".") for w in words if _NAME.fullmatch(w)]
    if len(words) > 1 and names and guess_name(names[0]).volatility is None:
        names = names[1:]
    place = Site(1, offset=offset)
    return tuple(Hole(cause_of(n), place, place) for n in names if n and n not in _CONTROL)
