"""The text of a file, and the place of every character in it."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field

from prefixctl.core.encoding import UndecodableError, decode_text, place_of

_LINE_END = re.compile(r"\r\n?")
_COOKIE = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
SNIPPET_CHARS = 80
"""Longest piece of text that is looked up in a quoted string to find its place."""


class UnreadableError(Exception):
    """A file whose text cannot be had, with the reason and the way out."""

    def __init__(self, message: str, *, line: int = 1, column: int = 1, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Source:
    """A file's text with its line ends brought to ``\\n``, which moves no line and no column.

    Attributes:
        path: As messages name it.
        text: Without a byte order mark.
        newline: The line end that the file uses.
        shown: What its lines are shown as, where the text was changed to be read.
    """

    path: str
    text: str
    newline: str = "\n"
    shown: str | None = field(default=None, repr=False)
    _starts: list[int] = field(default_factory=list, repr=False, compare=False)

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a character."""
        if not self._starts:
            self._starts.append(0)
            self._starts.extend(m.end() for m in re.finditer("\n", self.text))
        row = bisect.bisect_right(self._starts, offset) - 1
        return row + 1, offset - self._starts[row] + 1

    def offset(self, line: int) -> int:
        """The offset of a line's first character; the end of the text beyond the last line."""
        self.position(0)
        return self._starts[line - 1] if line <= len(self._starts) else len(self.text)

    def line(self, number: int) -> str:
        """One line without its end, or an empty string beyond the last."""
        text = self.text if self.shown is None else self.shown
        start = self.offset(number)
        end = text.find("\n", start)
        return text[start:] if end < 0 else text[start:end]


def decode(data: bytes, path: str) -> Source:
    """The text of a file, see `prefixctl.core.encoding`; Python code may declare its own encoding.

    Raises:
        UnreadableError: If its encoding is not certain, with the place of the first wrong byte.
    """
    text = _declared(data, path)
    if text is None:
        try:
            text = decode_text(data).text
        except UndecodableError as exc:
            raise UnreadableError(
                exc.message, line=exc.line, column=exc.column, advice=exc.hint
            ) from exc
    if "\0" in text:
        line, column = place_of(text[: text.index("\0")])
        raise UnreadableError("a binary file, not text", line=line, column=column)
    return source_of(text, path)


def source_of(text: str, path: str) -> Source:
    """A decoded file."""
    first = _LINE_END.search(text)
    newline = first.group() if first else "\n"
    return Source(path, _LINE_END.sub("\n", text) if first else text, newline)


def _declared(data: bytes, path: str) -> str | None:
    """The text of Python code in the encoding that it declares (PEP 263), if it does."""
    if not path.endswith(".py"):
        return None
    head = data.split(b"\n", 2)[:2]
    found = next((m for line in head if (m := _COOKIE.match(line))), None)
    if found is None or (name := found[1].decode("ascii")).lower() in {"utf-8", "utf8"}:
        return None
    try:
        return data.decode(name)
    except (LookupError, UnicodeError):
        return None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a block's text lies in its file.

    A block that is a stretch of the file maps character by character. One that was read from a
    quoted string (JSON, YAML) has escapes and folded lines between; there the text at the wanted
    place is looked up in the raw string.

    Attributes:
        source: The file.
        start: Offset of the block's text, or of the raw string, in the file.
        raw_end: End of the raw string in the file; None for a stretch of the file.
    """

    source: Source
    start: int = 0
    raw_end: int | None = None

    def offset(self, text: str, offset: int) -> int:
        """The offset in the file of a character of the block's text."""
        if self.raw_end is None:
            return self.start + offset
        raw = self.source.text[self.start : self.raw_end]
        snippet = _snippet(text, offset)
        found = -1
        if snippet:
            for _ in range(text.count(snippet, 0, offset) + 1):
                found = raw.find(snippet, found + 1)
                if found < 0:
                    break
        return self.start + max(found, 0)

    def position(self, text: str, offset: int) -> tuple[int, int]:
        """The line and column in the file of a character of the block's text."""
        return self.source.position(self.offset(text, offset))


def _snippet(text: str, offset: int) -> str:
    piece = text[offset : offset + SNIPPET_CHARS]
    end = re.search(r"\}\}?|[\n\"'\\]", piece)
    return piece[
        : end.end() if end and end.group().startswith("}") else (end.start() if end else None)
    ]
