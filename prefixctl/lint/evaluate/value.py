"""What a template prints, without rendering it: text and holes, choices and loops, in order.

The value of an expression has the same form as the output of a template, so that a value that is
computed, joined, chosen and stored keeps its text and its holes until it is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility

MAX_PARTS = 4000
"""A value of more parts than this is folded into its distinct holes."""
MAX_TEXT_CHARS = 1 << 20


class CauseKind(StrEnum):
    """What makes a value change."""

    CLOCK = "clock"
    RANDOM = "random"
    USER = "user"
    TENANT = "tenant"
    SESSION = "session"
    REQUEST = "request"
    DEPLOYMENT = "deployment"
    ORDER = "order"
    CONVERSATION = "conversation"
    SYSTEM = "system"
    POSITION = "position"
    SETTLED = "settled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a printed value changes, and how often.

    Attributes:
        variable: The variable or function, with its attributes: ``customer.firstName``.
        kind: What makes it change.
        volatility: How often; None where that is unknown or no matter of time.
        confidence: How sure.
        reason: In words, after "because".
        passable: The variable by which a caller can give the value instead, if there is one.
        fixed: Whether that is declared or computed, so that no name can say otherwise.
    """

    variable: str
    kind: CauseKind
    volatility: Volatility | None
    confidence: Confidence
    reason: str
    passable: str | None = None
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a block: an offset, the n-th print statement, or a word on a line.

    Attributes:
        line: The 1-based line in the block's text.
        word: A word on that line.
        printed: Index of the print statement, counted through the whole template.
        offset: The offset, where it is known.
    """

    line: int
    word: str = ""
    printed: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """Static text."""

    text: str


@dataclass(frozen=True, slots=True)
class Hole:
    """A value that only a request brings.

    Attributes:
        cause: Why it changes.
        origin: Where the value comes from.
        site: Where it is printed; None until it is.
        block: Which block of the document prints it; set when blocks are joined.
    """

    cause: Cause
    origin: Site
    site: Site | None = None
    block: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values, by a condition.

    Attributes:
        options: What may be printed.
        condition: The holes that decide.
        moved_from: Index of the first option for which the place of a turn decides, if one does.
    """

    options: tuple[Value, ...]
    condition: tuple[Hole, ...] = ()
    moved_from: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """A value that is printed again and again.

    Attributes:
        body: One round.
        dynamic: Whether the number of rounds differs between requests.
        conversation: Whether it prints the turns of the conversation.
    """

    body: Value
    dynamic: bool
    conversation: bool = False


Part = Text | Hole | Choice | Loop


@dataclass(frozen=True, slots=True)
class Value:
    """Parts in the order of printing.

    Attributes:
        parts: The parts.
        holes: All distinct holes in them, at any depth, without those that conditions read.
        size: Number of parts at any depth.
    """

    parts: tuple[Part, ...] = ()
    holes: tuple[Hole, ...] = ()
    size: int = 0

    @property
    def literal(self) -> str | None:
        """The text, if there is nothing but text."""
        if self.holes or not all(isinstance(p, Text) for p in self.parts):
            return None
        return "".join(p.text for p in self.parts if isinstance(p, Text))


EMPTY = Value()


def text_value(text: str) -> Value:
    """Static text as a value."""
    return Value((Text(text),), (), 1) if text else EMPTY


def hole_value(hole: Hole) -> Value:
    """One hole as a value."""
    return Value((hole,), (hole,), 1)


def holes_value(holes: Iterable[Hole]) -> Value:
    """Holes alone as a value, each once."""
    distinct = tuple(dict.fromkeys(holes))
    return Value(distinct, distinct, len(distinct))


def concat(values: Iterable[Value]) -> Value:
    """Values one behind the other."""
    kept = [v for v in values if v.parts]
    if len(kept) <= 1:
        return kept[0] if kept else EMPTY
    size = sum(v.size for v in kept)
    holes = _union(kept)
    if size > MAX_PARTS:
        return _folded(kept, holes)
    return Value(tuple(p for v in kept for p in v.parts), holes, size)


def choose(options: Iterable[Value], condition: tuple[Hole, ...] = ()) -> Value:
    """One of several values; equal options count once, and no text at all is nothing."""
    distinct = tuple(dict.fromkeys(options))
    if not any(o.parts for o in distinct):
        return EMPTY
    if len(distinct) == 1:
        return distinct[0]
    size = 1 + sum(o.size for o in distinct)
    holes = _union(distinct)
    if size > MAX_PARTS:
        return _folded(distinct, holes)
    return Value((Choice(distinct, condition),), holes, size)


def branched(options: tuple[Value, ...], tests: tuple[tuple[Hole, ...], ...]) -> Value:
    """The branches of an ``if``, with the holes that each test reads."""
    moved_from = next(
        (i for i, t in enumerate(tests) if any(h.cause.kind is CauseKind.POSITION for h in t)), 0
    )
    condition = tuple(dict.fromkeys(h for t in tests for h in t))
    chosen = choose(options, condition)
    if len(chosen.parts) != 1 or not isinstance(chosen.parts[0], Choice) or not moved_from:
        return chosen
    return Value((Choice(options, condition, moved_from),), chosen.holes, chosen.size)


def loop(body: Value, *, dynamic: bool, conversation: bool) -> Value:
    """A value printed again and again."""
    if not body.parts:
        return EMPTY
    return Value((Loop(body, dynamic, conversation),), body.holes, body.size + 1)


def printed_at(value: Value, site: Site) -> Value:
    """The value with every hole that was not printed yet printed at a site."""
    if not any(h.site is None for h in value.holes):
        return value
    return _mapped(value, lambda h: h if h.site is not None else replace(h, site=site))


def moved_to(value: Value, site: Site) -> Value:
    """The value with every hole that was not printed yet made and printed at a site."""
    return _mapped(value, lambda h: h if h.site is not None else replace(h, origin=site, site=site))


def in_block(value: Value, block: int) -> Value:
    """The value with its holes in the given block."""
    if not block:
        return value
    return _mapped(value, lambda h: replace(h, block=block))


def map_causes(value: Value, change: Callable[[Cause], Cause]) -> Value:
    """The value with every cause changed."""
    if not value.holes:
        return value
    return _mapped(value, lambda h: replace(h, cause=change(h.cause)))


def map_holes(value: Value, change: Callable[[Hole], Hole]) -> Value:
    """The value with every hole changed."""
    return _mapped(value, change) if value.holes else value


def _mapped(value: Value, change: Callable[[Hole], Hole]) -> Value:
    parts: list[Part] = []
    for part in value.parts:
        if isinstance(part, Hole):
            parts.append(change(part))
        elif isinstance(part, Choice):
            options = tuple(_mapped(o, change) for o in part.options)
            condition = tuple(change(h) for h in part.condition)
            parts.append(Choice(options, condition, part.moved_from))
        elif isinstance(part, Loop):
            parts.append(Loop(_mapped(part.body, change), part.dynamic, part.conversation))
        else:
            parts.append(part)
    holes = tuple(dict.fromkeys(change(h) for h in value.holes))
    return Value(tuple(parts), holes, value.size)


def _union(values: Iterable[Value]) -> tuple[Hole, ...]:
    holes = [v.holes for v in values if v.holes]
    if len(holes) <= 1:
        return holes[0] if holes else ()
    return tuple(dict.fromkeys(h for group in holes for h in group))


def _folded(values: Iterable[Value], holes: tuple[Hole, ...]) -> Value:
    """Too much to keep in order: the distinct holes, then the longest plain text."""
    texts = [p.text for v in values for p in v.parts if isinstance(p, Text)]
    text = max(texts, key=len, default="")[:MAX_TEXT_CHARS]
    kept = holes[: MAX_PARTS // 2]
    return Value((*kept, Text(text)), kept, len(kept) + 1)
