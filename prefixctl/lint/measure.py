"""How much shareable text stands ahead of and behind every hole of a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from prefixctl.lint.evaluate.names import split_words
from prefixctl.lint.evaluate.value import (
    Cause,
    CauseKind,
    Choice,
    Hole,
    Loop,
    Part,
    Text,
    Value,
)
from prefixctl.lint.tokens import TokenCounter

_LABEL_LINE = re.compile(
    r"</?\w[^<>]*>|#+ .*|.*[:：]|[-=*_`~#\[\]{}()\"'.,;|]*"
    r"|(?:based (?:up)?on|given|using|from|considering|according to|with) (?:(?:all|only) )?"
    r"(?:of )?the (?:\w+ ){0,2}(?:above|preceding)\b.{0,200}"
    r"|(?:根据|基于|结合)(?:以上|上述|上面).{0,80}",
    re.IGNORECASE,
)
"""A line that announces, closes or leans on a value (a tag, a heading, a fence, a line that ends
with a colon, "based on the above ..."): it goes where the value goes, so it is nothing that a block
could share."""
_OWN_TEXT = frozenset(
    ["instructions", "instruction", "rules", "guidelines", "policies", "schema", "schemas",
     "examples", "shots", "shot", "demonstrations", "exemplars", "criteria"]
)  # fmt: skip
_GIVEN = frozenset(
    ["user", "custom", "additional", "extra", "task", "query", "input", "dynamic", "tool", "tools",
     "function", "functions"]
)  # fmt: skip
"""Words of names that somebody else fills in."""
UNSEEN_TEXT_TOKENS = 32
"""What a variable that holds the application's own text is taken for at least."""
_TOOLS = re.compile(r"\w*(?:tools?|functions?)(?:$|\.)")
_REASONING = re.compile(r"reasoning|thinking")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """A hole and what stands behind it.

    Attributes:
        hole: The hole.
        guarded: Whether it is printed under a condition only.
        condition: Whether its value is not printed but decides what is.
        tokens_behind: Static tokens behind it.
        shareable_tokens: Those without labels of other values.
        before_conversation: Whether the turns of a conversation stand behind it.
        moved_by: What decides that it stands elsewhere once a turn is added, if it does.
    """

    hole: Hole
    guarded: bool
    condition: bool
    tokens_behind: int
    shareable_tokens: int
    before_conversation: bool
    moved_by: Hole | None = None


@dataclass(frozen=True, slots=True)
class _Behind:
    tokens: int = 0
    shareable: int = 0
    conversation: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a walk is: under a condition, among the turns, behind a condition on the end."""

    guarded: bool = False
    turns: bool = False
    moved_by: Hole | None = None


@dataclass(slots=True)
class Measure:
    """The measures of one prompt.

    Attributes:
        counter: Counts tokens.
        exposures: Every hole that is printed or decides, in the order of printing.
        total_tokens: All static tokens, of the longest choice.
        prefix_tokens: Static tokens ahead of the first value that changes.
    """

    counter: TokenCounter
    exposures: list[Exposure] = field(default_factory=list)
    total_tokens: int = 0
    prefix_tokens: int = 0
    _counts: dict[str, int] = field(default_factory=dict)

    def read(self, value: Value) -> None:
        """Measure a prompt.

        Raises:
            RecursionError: If it is nested too deeply.
        """
        behind = self._walk(value.parts, _Behind(), _Place())
        self.exposures.reverse()
        self.total_tokens = behind.tokens
        self.prefix_tokens, _ = self._prefix(value.parts)

    def _count(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = self.counter.count(text)
        return self._counts[text]

    def _walk(self, parts: tuple[Part, ...], behind: _Behind, place: _Place) -> _Behind:
        """Go through parts from the last to the first."""
        for index in range(len(parts) - 1, -1, -1):
            part = parts[index]
            if isinstance(part, Text):
                behind = self._text(parts, index, behind, place)
            elif isinstance(part, Hole):
                self._expose(part, behind, place)
                if stands_for_text(part.cause) and not (place.turns or place.guarded):
                    behind = replace(behind, shareable=behind.shareable + UNSEEN_TEXT_TOKENS)
            elif isinstance(part, Choice):
                behind = self._choice(part, behind, place)
            else:
                behind = self._loop(part, behind, place)
        return behind

    def _text(self, parts: tuple[Part, ...], index: int, behind: _Behind, place: _Place) -> _Behind:
        part = parts[index]
        if not isinstance(part, Text) or place.turns:
            return behind
        tokens = self._count(part.text)
        open_before = index > 0 and not isinstance(parts[index - 1], Text)
        open_behind = index + 1 == len(parts) or not isinstance(parts[index + 1], Text)
        head, tail = labels(part.text, start=open_before, end=open_behind)
        shareable = max(0, tokens - sum(self._count(t) for t in (head, tail) if t))
        return _Behind(behind.tokens + tokens, behind.shareable + shareable, behind.conversation)

    def _choice(self, part: Choice, behind: _Behind, place: _Place) -> _Behind:
        guarded = place.guarded or not _always_changes(part)
        position = next((h for h in part.condition if h.cause.kind is CauseKind.POSITION), None)
        moved_by = place.moved_by or (position if place.turns else None)
        ends = [
            self._walk(
                part.options[index].parts,
                behind,
                _Place(
                    guarded, place.turns, moved_by if index >= part.moved_from else place.moved_by
                ),
            )
            for index in reversed(range(len(part.options)))
        ]
        most = _Behind(
            max(e.tokens for e in ends),
            max(e.shareable for e in ends),
            any(e.conversation for e in ends),
        )
        self._decide(part.condition, (h for o in part.options for h in o.holes), most, place)
        return most

    def _decide(
        self, holes: tuple[Hole, ...], printed: Iterable[Hole], behind: _Behind, place: _Place
    ) -> None:
        """Expose the holes that decide what is printed and are not printed there themselves."""
        roots = {_root(h) for h in printed} if holes else set()
        for hole in holes:
            if hole.cause.volatility is not None and _root(hole) not in roots:
                self._expose(hole, behind, place, condition=True)

    def _loop(self, part: Loop, behind: _Behind, place: _Place) -> _Behind:
        if part.conversation:
            turns = _Behind(0, 0, conversation=True)
            self._walk(part.body.parts, turns, _Place(place.guarded, turns=True))
            return turns
        inner = self._walk(part.body.parts, behind, place)
        most = behind if part.dynamic else inner
        self._decide(part.source, part.body.holes, most, place)
        return most

    def _expose(
        self, hole: Hole, behind: _Behind, place: _Place, *, condition: bool = False
    ) -> None:
        self.exposures.append(
            Exposure(
                hole=hole,
                guarded=place.guarded,
                condition=condition,
                tokens_behind=behind.tokens,
                shareable_tokens=behind.shareable,
                before_conversation=behind.conversation,
                moved_by=place.moved_by if not condition and _stands_still(hole) else None,
            )
        )

    def _prefix(self, parts: tuple[Part, ...]) -> tuple[int, bool]:
        """Static tokens up to the first value that changes, and whether there is one."""
        tokens = 0
        for part in parts:
            if isinstance(part, Text):
                tokens += self._count(part.text)
            elif isinstance(part, Hole):
                if _changes(part):
                    return tokens, True
            elif isinstance(part, Loop):
                inner, ended = self._prefix(part.body.parts)
                if part.conversation or part.dynamic:
                    return tokens + (0 if part.dynamic else inner), True
                tokens += inner
                if ended:
                    return tokens, True
            else:
                inner, ended = self._prefix_of_choice(part)
                tokens += inner
                if ended:
                    return tokens, True
        return tokens, False

    def _prefix_of_choice(self, part: Choice) -> tuple[int, bool]:
        if any(_changes(h) for h in part.condition):
            return 0, True
        found = [self._prefix(o.parts) for o in part.options]
        ending = [tokens for tokens, ended in found if ended]
        if ending:
            return min(ending), True
        return max(tokens for tokens, _ in found), False


def stands_for_text(cause: Cause) -> bool:
    """Whether a variable holds the application's own text: instructions, a schema, examples."""
    if cause.volatility is not None or cause.kind not in {CauseKind.SETTLED, CauseKind.UNKNOWN}:
        return False
    return _names_own_text(cause.variable)


@lru_cache(maxsize=8192)
def _names_own_text(variable: str) -> bool:
    words = [w for part in variable.split(".") if (w := split_words(part))]
    return any(w[-1] in _OWN_TEXT for w in words) and not any(_GIVEN & set(w) for w in words)


def is_label(line: str) -> bool:
    """Whether a line only names, opens or closes a value."""
    return _LABEL_LINE.fullmatch(line.strip()) is not None


def labels(text: str, *, start: bool, end: bool) -> tuple[str, str]:
    """The lines at the ends of a text that only name, open or close a value."""
    if not (start or end):
        return "", ""
    lines = text.split("\n")
    low, high = 0, len(lines)
    if end:
        while high > low and is_label(lines[high - 1]):
            high -= 1
    if start:
        while low < high and is_label(lines[low]):
            low += 1
    return "\n".join(lines[:low]), "\n".join(lines[high:])


def _changes(hole: Hole) -> bool:
    volatility = hole.cause.volatility
    if volatility is None:
        return hole.cause.kind in {CauseKind.CONVERSATION, CauseKind.POSITION}
    return volatility.is_dynamic


def _always_changes(part: Part) -> bool:
    """Whether a value that changes is printed whichever way the conditions go."""
    if isinstance(part, Hole):
        return part.cause.volatility is not None and part.cause.volatility.is_dynamic
    if isinstance(part, Choice):
        return len(part.options) > 1 and all(
            any(_always_changes(p) for p in o.parts) for o in part.options
        )
    return isinstance(part, Loop) and any(_always_changes(p) for p in part.body.parts)


def _root(hole: Hole) -> str:
    return hole.cause.variable.split(".", 1)[0]


def _stands_still(hole: Hole) -> bool:
    """Whether a value belongs to one place of a conversation: system text, tools, reasoning."""
    variable = hole.cause.variable
    if hole.cause.kind is CauseKind.SYSTEM:
        return variable.startswith("messages[0]")
    if hole.cause.kind is CauseKind.CONVERSATION:
        return bool(_REASONING.search(variable))
    return bool(_TOOLS.match(variable))
