"""String literals of source code: their text, and where each character of it stands."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_ESCAPE = re.compile(
    r"\\(?:\n[ \t]*|x[0-9A-Fa-f]{2}|u\{[0-9A-Fa-f]+\}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}"
    r"|N\{[^}\n]*\}|.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """The text of one or more literals.

    Attributes:
        text: The text.
        anchors: Offsets in the text and in the file at which a stretch of equal text begins.
    """

    text: str
    anchors: tuple[tuple[int, int], ...]

    def place(self, offset: int) -> int:
        """The offset in the file of a character of the text."""
        index = bisect.bisect_right(self.anchors, (offset, 1 << 60)) - 1
        if index < 0:
            return 0
        at, start = self.anchors[index]
        return start + offset - at


def read_literal(
    text: str, start: int, end: int, *, raw: bool, keep_indent: bool = True
) -> Literal:
    """The text between the quotes of a literal.

    Args:
        text: The file.
        start: Offset behind the opening quote.
        end: Offset of the closing quote.
        raw: Whether a backslash is a backslash.
        keep_indent: Whether a backslash at the end of a line leaves the next line's indentation.
    """
    if raw or "\\" not in text[start:end]:
        return Literal(text=text[start:end], anchors=((0, start),))
    parts: list[str] = []
    anchors = [(0, start)]
    length, at = 0, start
    for escape in _ESCAPE.finditer(text, start, end):
        stop = escape.end()
        if escape.group()[1] == "\n" and keep_indent:
            stop = escape.start() + 2
        plain, meant = text[at : escape.start()], _meaning(escape.group())
        parts += [plain, meant]
        length += len(plain)
        anchors.append((length, escape.start()))
        length += len(meant)
        anchors.append((length, stop))
        at = stop
    parts.append(text[at:end])
    return Literal(text="".join(parts), anchors=tuple(anchors))


def join(literals: list[Literal]) -> Literal:
    """Literals that stand one behind the other as one."""
    anchors: list[tuple[int, int]] = []
    length = 0
    for literal in literals:
        anchors += [(length + at, start) for at, start in literal.anchors]
        length += len(literal.text)
    return Literal(text="".join(p.text for p in literals), anchors=tuple(anchors))


def _meaning(escape: str) -> str:
    kind = escape[1]
    if kind == "\n":
        return ""
    digits = escape[2:].strip("{}")
    if kind in "xuU" and digits:
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            return escape
    return _ESCAPES.get(kind, "?" if kind == "N" else kind)
