"""Counting tokens: exact with a target's tokenizer, else an estimate that says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

_PIECE = re.compile(
    r"[A-Za-z\u00c0-\u024f]{1,9}|\d{1,3}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,2}"
    r"|\n+|[^\sA-Za-z\d\u00c0-\u024f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,3}|[ \t]{3,}"
)
"""About one token each in today's byte-level vocabularies: a word or a part of a long one, three
digits, one or two ideographs, a run of punctuation, of line ends or of indentation."""


class TokenCounter(Protocol):
    """Counts the tokens of a text.

    Attributes:
        exact: Whether the counts are those of the model, or an estimate.
    """

    exact: bool

    def count(self, text: str) -> int:
        """The number of tokens of a text alone."""


class EstimatedTokens:
    """An estimate from the shape of the text."""

    exact = False

    def count(self, text: str) -> int:
        """About how many tokens a text has."""
        return len(_PIECE.findall(text))


class ExactTokens:
    """The counts of a target's tokenizer."""

    exact = True

    def __init__(self, encode: Callable[[str], Sequence[int]]) -> None:
        self._encode = encode

    def count(self, text: str) -> int:
        """How many tokens a text has for the model."""
        return len(self._encode(text))
