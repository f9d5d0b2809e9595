"""Static parts along a rendered text: where the first value that changes may stand in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prefixctl.lint.evaluate.value import CauseKind, Choice, Hole, Loop, Part, Text, Value

MAX_ROUNDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How a rendered text fits what static analysis expects.

    Attributes:
        ends: The places where the first value that changes may stand.
        complete: Whether the whole text is explained without any value that changes.
    """

    ends: frozenset[int]
    complete: bool


def align(value: Value, text: str) -> Alignment:
    """Read a value along a text that was rendered from its template.

    Static text must stand where it is expected, give or take what filters do to case and white
    space. A printed value that stays the same has any text; so has whatever a loop prints beside
    its static text, since the items of a constant list are no static text.
    """
    going, ends = _walk(value.parts, {0}, text)
    complete = any(not text[g:].strip() for g in going)
    return Alignment(ends=frozenset(ends), complete=complete)


def _walk(
    parts: Iterable[Part], starts: set[int], text: str, *, loose: bool = False
) -> tuple[set[int], set[int]]:
    """Where parts may end that start at some place, and where the first change may stand."""
    ends: set[int] = set()
    for part in parts:
        if not starts:
            break
        if isinstance(part, Text):
            starts = _behind(part.text, _from(starts, text) if loose else starts, text)
        elif isinstance(part, Hole):
            if _changes(part):
                return set(), ends | starts
            starts = _from(starts, text)
        elif isinstance(part, Choice):
            if any(_changes(h) for h in part.condition):
                return set(), ends | starts
            walks = [_walk(o.parts, starts, text, loose=loose) for o in part.options]
            starts = set().union(*(w[0] for w in walks))
            ends = ends.union(*(w[1] for w in walks))
        else:
            starts, stopped = _rounds(part, starts, text)
            ends |= stopped
    return starts, ends


def _from(starts: set[int], text: str) -> set[int]:
    return set(range(min(starts), len(text) + 1))


def _behind(piece: str, starts: set[int], text: str) -> set[int]:
    """Where a piece of static text ends that starts at some place.

    Of a piece that stands nowhere (a format, a text that a filter rewrites) only what agrees is
    taken for granted.
    """
    for tried in dict.fromkeys((piece, piece.rstrip(), piece.lstrip(), piece.strip())):
        folded, length = tried.casefold(), len(tried)
        found = {s + length for s in starts if text.startswith(tried, s)} or {
            s + length for s in starts if text[s : s + length].casefold() == folded
        }
        if found:
            return found
    return _from({s + shared_chars(piece, text[s : s + len(piece)]) for s in starts}, text)


def _rounds(part: Loop, starts: set[int], text: str) -> tuple[set[int], set[int]]:
    """Read a loop along a text: any number of rounds, unless that number itself changes."""
    if part.dynamic:
        return set(), starts
    reached, new, ends = set(starts), set(starts), set()
    for _ in range(MAX_ROUNDS):
        new, stopped = _walk(part.body.parts, new, text, loose=True)
        ends |= stopped
        new = (_from(new, text) if new else new) - reached
        reached |= new
        if not new:
            break
    return reached, ends


def _changes(hole: Hole) -> bool:
    volatility = hole.cause.volatility
    if volatility is None:
        return hole.cause.kind in {CauseKind.CONVERSATION, CauseKind.POSITION}
    return volatility.is_dynamic


def shared_chars(first: str, second: str) -> int:
    """How many characters from the start two texts have in common."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
