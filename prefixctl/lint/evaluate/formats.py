"""How often the text that a date format prints changes."""

from __future__ import annotations

import re
from functools import lru_cache

from prefixctl.core.prompt import Volatility

_STRFTIME = re.compile(r"%[-_0^#EO:]*\d*([A-Za-z%])")
_SECOND = frozenset("SsfTXcrNLn+Q")
_MINUTE = frozenset("MR")
_HOUR = frozenset("HIklpP")
_LETTERS = re.compile(r"'[^']*'|\[[^\]]*\]|([A-Za-z])\1*")
_ISO_LENGTHS = {4: Volatility.DAY, 7: Volatility.DAY, 10: Volatility.DAY, 13: Volatility.HOUR,
                16: Volatility.MINUTE}  # fmt: skip
"""Length of a cut ISO 8601 text -> how often it changes."""


@lru_cache(maxsize=1024)
def format_volatility(pattern: str) -> Volatility:
    """The resolution of a date format, strftime (``%H:%M``) or letters (``yyyy-MM-dd HH:mm``).

    Returns:
        SECOND, MINUTE, HOUR or DAY (a month or a year counts as a day), or CONSTANT for a pattern
        that prints no part of a date.
    """
    if "%" not in pattern:
        return _letters_volatility(pattern)
    codes = {m.group(1) for m in _STRFTIME.finditer(pattern)} - {"%", "n", "t", "Z", "z"}
    if codes & _SECOND:
        return Volatility.SECOND
    if codes & _MINUTE:
        return Volatility.MINUTE
    if codes & _HOUR:
        return Volatility.HOUR
    return Volatility.DAY if codes else Volatility.CONSTANT


def slice_volatility(stop: int) -> Volatility | None:
    """The resolution of an ISO 8601 text that is cut at ``stop``, or None for another length."""
    return _ISO_LENGTHS.get(stop)


def _letters_volatility(pattern: str) -> Volatility:
    runs = [m.group() for m in _LETTERS.finditer(pattern) if m.group(1)]
    letters = {run[0] for run in runs}
    if letters & {"s", "S", "X"}:
        return Volatility.SECOND
    if "i" in letters or ("m" in letters and letters & {"h", "H", "k", "K"}):
        return Volatility.MINUTE
    if letters & {"h", "H", "k", "K", "G", "g", "a", "A"}:
        return Volatility.HOUR
    return Volatility.DAY if letters & set("yYMdDmjEelFnNw") else Volatility.CONSTANT
