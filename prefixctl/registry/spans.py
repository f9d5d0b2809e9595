"""A rendered prompt cut where its volatility changes, a block ends or the shared prefix ends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from prefixctl.core.prompt import Parameter, Volatility

_FIRST_MARK = 0xE000
"""Private use characters: two for each parameter, one before and one behind its value."""
_MARKS = 0xF8FF - _FIRST_MARK


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Characters ``start`` to ``end`` of a text, and how often they change."""

    start: int
    end: int
    volatility: Volatility


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of the text.

    Attributes:
        text: The characters.
        volatility: How often they change.
        token: Index of the first token that ends behind the start of the piece.
        block: Number (from 1) of the full KV block that ends with the piece, if one does.
        ends_shared: Whether the shared prefix ends with the piece.
    """

    text: str
    volatility: Volatility
    token: int
    block: int | None = None
    ends_shared: bool = False


def find_regions(
    text: str,
    values: Mapping[str, str],
    parameters: Mapping[str, Parameter],
    render: Callable[[Mapping[str, str]], str],
) -> list[Region]:
    """Which characters of a rendered text come from parameters.

    Every value is marked at both ends and rendered again. A template that does more with a value
    than print it can fall over the marks; then each value is changed alone, and all between the
    first and the last difference counts as its own.

    Args:
        text: The text rendered with ``values``.
        values: By parameter.
        parameters: By name.
        render: Makes the text from values.
    """
    names = sorted(values)
    if 2 * len(names) <= _MARKS:
        marked = {
            name: chr(_FIRST_MARK + 2 * i) + values[name] + chr(_FIRST_MARK + 2 * i + 1)
            for i, name in enumerate(names)
        }
        scopes = [parameters[name].scope for name in names]
        plain, regions = _strip_marks(render(marked), scopes)
        if plain == text:
            return regions
    return _by_difference(text, values, parameters, render)


def cut(
    text: str,
    regions: Sequence[Region],
    token_ends: Sequence[int],
    *,
    block_size: int,
    shared_tokens: int,
) -> list[Span]:
    """Cut a text into spans.

    Args:
        text: The text.
        regions: Parts that come from parameters; where they overlap the most volatile wins.
        token_ends: For each token the character behind its last one, never falling.
        block_size: Tokens in a block.
        shared_tokens: Tokens of the shared prefix.
    """
    blocks = {
        token_ends[number * block_size - 1]: number
        for number in range(1, len(token_ends) // block_size + 1)
    }
    shared_end = token_ends[min(shared_tokens, len(token_ends)) - 1] if shared_tokens else 0
    places = {0, len(text), shared_end, *blocks}
    places |= {r.start for r in regions} | {r.end for r in regions}
    spans = []
    for start, end in pairwise(sorted(places)):
        inside = [r.volatility for r in regions if r.start <= start and end <= r.end]
        spans.append(
            Span(
                text=text[start:end],
                volatility=max(inside, default=Volatility.CONSTANT),
                token=bisect_right(token_ends, start),
                block=blocks.get(end),
                ends_shared=bool(shared_tokens) and end == shared_end,
            )
        )
    return spans


def _strip_marks(marked: str, scopes: Sequence[Volatility]) -> tuple[str, list[Region]]:
    kept: list[str] = []
    opened: dict[int, int] = {}
    regions = []
    for character in marked:
        place = ord(character) - _FIRST_MARK
        if not 0 <= place < 2 * len(scopes):
            kept.append(character)
        elif place % 2 == 0:
            opened[place // 2] = len(kept)
        elif place // 2 in opened:
            start = opened.pop(place // 2)
            regions.append(Region(start=start, end=len(kept), volatility=scopes[place // 2]))
    return "".join(kept), [r for r in regions if r.end > r.start]


def _by_difference(
    text: str,
    values: Mapping[str, str],
    parameters: Mapping[str, Parameter],
    render: Callable[[Mapping[str, str]], str],
) -> list[Region]:
    regions = []
    for name, value in values.items():
        other = render({**values, name: f"~{value}~"})
        start = _common(text, other)
        back = _common(text[start:][::-1], other[start:][::-1])
        end = len(text) - back
        if end > start:
            regions.append(Region(start=start, end=end, volatility=parameters[name].scope))
    return regions


def _common(first: str, second: str) -> int:
    limit = min(len(first), len(second))
    return next((i for i in range(limit) if first[i] != second[i]), limit)
