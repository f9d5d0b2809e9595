"""The text of a file, and the place of every character in it."""

from __future__ import annotations

import bisect
import codecs
import re
from dataclasses import dataclass, field

_LINE_END = re.compile(r"\r\n?")
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF32_MARKS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_UTF16_LOOK_BYTES = 4096
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
    """

    path: str
    text: str
    newline: str = "\n"
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
        start = self.offset(number)
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]


def decode(data: bytes, path: str) -> Source:
    """The text of a file: UTF-8, or UTF-16 with a byte order mark.

    Raises:
        UnreadableError: For anything else, with the line of the first wrong byte.
    """
    text = _text(data)
    if "\0" in text:
        before = text[: text.index("\0")]
        raise UnreadableError("a binary file, not text", line=_line_count(before))
    first = _LINE_END.search(text)
    newline = first.group() if first else "\n"
    return Source(path, _LINE_END.sub("\n", text) if first else text, newline)


def _text(data: bytes) -> str:
    if data.startswith(_UTF32_MARKS):
        raise UnreadableError("UTF-32", advice="save the file as UTF-8")
    if data.startswith(_UTF16_MARKS):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError as exc:
            raise UnreadableError(
                "broken UTF-16", advice="save the file as UTF-8 without a byte order mark"
            ) from exc
    if _is_unmarked_utf16(data):
        raise UnreadableError(
            "not UTF-8 (it looks like UTF-16 without a byte order mark)",
            advice="save the file as UTF-8",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode("utf-8-sig", errors="replace")
        column = len(before) - max(before.rfind("\n"), before.rfind("\r"))
        raise UnreadableError(
            f"not UTF-8{_likely(data)}",
            line=_line_count(before),
            column=column,
            advice="save the file as UTF-8",
        ) from exc


def _is_unmarked_utf16(data: bytes) -> bool:
    """Whether every second byte of a file's beginning is zero, as in English text in UTF-16."""
    head = data[:_UTF16_LOOK_BYTES]
    half = len(head) // 2
    zeros = (head[0::2].count(0), head[1::2].count(0))
    return half > 1 and max(zeros) >= half * 0.9 and min(zeros) == 0


def _likely(data: bytes) -> str:
    """The encoding that a file seems to have, for the message."""
    if b"\0" in data:
        return ""
    try:
        text = data.decode("gb18030")
    except UnicodeDecodeError:
        return ""
    ideographs = sum("\u4e00" <= c <= "\u9fff" for c in text)
    wide = sum(c > "\x7f" for c in text)
    return " (it looks like GBK)" if wide and ideographs * 2 > wide else ""


def _line_count(text: str) -> int:
    return len(_LINE_END.sub("\n", text).split("\n"))


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
