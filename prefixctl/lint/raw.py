"""A file byte for byte: its mark, its encoding, its line ends."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from prefixctl.core.encoding import decode_text

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """A file that is a prompt as a whole, as it lies on the disk.

    Attributes:
        path: As messages name it.
        mark: Its byte order mark, or nothing.
        encoding: What the bytes behind the mark are.
        text: With the line ends that it has.
        standalone: Whether nothing is put ahead of it or behind it, so that blank lines at its ends
            are nobody's separators: no chat template, no section of a governed prompt.
    """

    path: str
    mark: bytes
    encoding: str
    text: str
    standalone: bool = False

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return self.mark + self.text.encode(self.encoding)

    @property
    def lines(self) -> list[str]:
        """Its lines with their ends."""
        return _LINE.findall(self.text)

    @property
    def line_ends(self) -> Counter[str]:
        """How often it uses each line end."""
        ends = (end_of(line) for line in self.lines)
        return Counter(end for end in ends if end)

    @property
    def newline(self) -> str:
        """The line end that it uses most; the plain one if that is undecided."""
        ends = self.line_ends
        return max(ends, key=lambda end: (ends[end], end == "\n"), default="\n")


def raw_file(data: bytes, path: str, *, standalone: bool = False) -> RawFile:
    """A file from its bytes.

    Raises:
        UndecodableError: If its encoding is not certain.
    """
    found = decode_text(data)
    return RawFile(
        path=path,
        mark=found.mark,
        encoding=found.encoding,
        text=found.text,
        standalone=standalone,
    )


def end_of(line: str) -> str:
    """The line end of a line, or nothing."""
    return line[len(line.rstrip("\r\n")) :]
