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
        source: The holes that decide how many rounds there are.
    """

    body: Value
    dynamic: bool
    conversation: bool = False
    source: tuple[Hole, ...] = ()


Part = Text | Hole | Choice | Loop


@dataclass(frozen=True, slots=True)
class Value:
    """Parts in the order of printing.

    Attributes:
        parts: The parts.
        holes: All distinct holes in them, at any depth, without those that conditions read.
        size: Number of parts at any depth.
        deciding: The distinct holes that conditions and loops in it read, at any depth.
    """

    parts: tuple[Part, ...] = ()
    holes: tuple[Hole, ...] = ()
    size: int = 0
    deciding: tuple[Hole, ...] = ()

    @property
    def reads(self) -> tuple[Hole, ...]:
        """All holes on which the value depends: those that it prints, and those that decide."""
        return (*self.holes, *self.deciding) if self.deciding else self.holes

    @property
    def literal(self) -> str | None:
        """The text, if there is nothing but text."""
        if self.holes or not all(isinstance(p, Text) for p in self.parts):
            return None
        return "".join(p.text for p in self.parts if isinstance(p, Text))


EMPTY = Value()
SOME = Value((Text(""),), (), 1)
"""Static text that is there, and of which nothing else is known."""


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
    return Value(tuple(p for v in kept for p in v.parts), holes, size, _deciding(kept))


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
    return Value((Choice(distinct, condition),), holes, size, _deciding(distinct, condition))


def decided(condition: tuple[Hole, ...]) -> Value:
    """A value that some holes decide and of which nothing else is known."""
    return Value((Choice(_EITHER, condition),), (), 3, condition) if condition else EMPTY


def derived(values: Iterable[Value]) -> Value:
    """Something computed from values: it depends on all that they depend on."""
    given = list(values)
    return concat([holes_value(_union(given)), decided(_deciding(given))])


def computed(values: Iterable[Value]) -> Value:
    """A number or a member that is computed from values: they also decide whether it is there."""
    value = derived(values)
    changing = (h for h in value.reads if h.cause.volatility is not None)
    return concat([SOME, value, decided(tuple(changing))])


def boolean(condition: tuple[Hole, ...]) -> Value:
    """What a comparison prints."""
    return Value((Choice(_TRUTH, condition),), (), 3, condition)


def branched(options: tuple[Value, ...], tests: tuple[tuple[Hole, ...], ...]) -> Value:
    """The branches of an ``if``, with the holes that each test reads."""
    moved_from = next(
        (i for i, t in enumerate(tests) if any(h.cause.kind is CauseKind.POSITION for h in t)), 0
    )
    condition = tuple(dict.fromkeys(h for t in tests for h in t))
    chosen = choose(options, condition)
    if len(chosen.parts) != 1 or not isinstance(chosen.parts[0], Choice) or not moved_from:
        return chosen
    return replace(chosen, parts=(Choice(options, condition, moved_from),))


def loop(body: Value, *, dynamic: bool, conversation: bool, source: tuple[Hole, ...] = ()) -> Value:
    """A value printed again and again."""
    if not body.parts:
        return EMPTY
    repeated = Loop(body, dynamic, conversation, source)
    return Value((repeated,), body.holes, body.size + 1, _deciding((body,), source))


def printed_at(value: Value, site: Site) -> Value:
    """The value with every hole that was not printed yet printed at a site."""
    if not any(h.site is None for h in value.holes):
        return value
    return _mapped(
        value, lambda h: h if h.site is not None else replace(h, site=site), deciding=False
    )


def moved_to(value: Value, site: Site) -> Value:
    """The value with every hole that was not printed yet made and printed at a site."""
    return _mapped(value, lambda h: h if h.site is not None else replace(h, origin=site, site=site))


def in_block(value: Value, block: int) -> Value:
    """The value with its holes in the given block."""
    if not block:
        return value
    return _mapped(value, lambda h: replace(h, block=block))


def map_causes(value: Value, change: Callable[[Cause], Cause], *, deciding: bool = False) -> Value:
    """The value with the cause of everything that it prints changed.

    Args:
        value: The value.
        change: What a cause becomes.
        deciding: Whether what conditions read is changed as well.
    """
    if not (value.reads if deciding else value.holes):
        return value
    return _mapped(value, lambda h: replace(h, cause=change(h.cause)), deciding=deciding)


def map_holes(value: Value, change: Callable[[Hole], Hole]) -> Value:
    """The value with every hole changed, those that conditions read as well."""
    return _mapped(value, change) if value.reads else value


def _mapped(value: Value, change: Callable[[Hole], Hole], *, deciding: bool = True) -> Value:
    decide = change if deciding else _same
    parts: list[Part] = []
    for part in value.parts:
        if isinstance(part, Hole):
            parts.append(change(part))
        elif isinstance(part, Choice):
            options = tuple(_mapped(o, change, deciding=deciding) for o in part.options)
            condition = tuple(decide(h) for h in part.condition)
            parts.append(Choice(options, condition, part.moved_from))
        elif isinstance(part, Loop):
            body = _mapped(part.body, change, deciding=deciding)
            source = tuple(decide(h) for h in part.source)
            parts.append(Loop(body, part.dynamic, part.conversation, source))
        else:
            parts.append(part)
    holes = tuple(dict.fromkeys(change(h) for h in value.holes))
    return Value(
        tuple(parts), holes, value.size, tuple(dict.fromkeys(decide(h) for h in value.deciding))
    )


def _same(hole: Hole) -> Hole:
    return hole


def _deciding(values: Iterable[Value], more: tuple[Hole, ...] = ()) -> tuple[Hole, ...]:
    """The holes that decide in any of the values, and some more, each once."""
    found = [v.deciding for v in values if v.deciding]
    if not found:
        return more
    return tuple(dict.fromkeys(h for group in (*found, more) for h in group))


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


_EITHER = (EMPTY, SOME)
_TRUTH = (text_value("True"), text_value("False"))
