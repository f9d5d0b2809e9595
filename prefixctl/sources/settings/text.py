"""Text that knows where each of its characters stands in a file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from prefixctl.core.findings import Location

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A decoded file.

    Attributes:
        path: As the user named it.
        text: The text, line ends as they are.
        starts: Offsets at which lines begin.
    """

    path: str
    text: str = field(repr=False)
    starts: Sequence[int] = field(default=(), repr=False)

    @classmethod
    def of(cls, path: str, text: str) -> SourceFile:
        """A file of that text."""
        starts = (0, *(m.end() for m in _LINE_END.finditer(text)))
        return cls(path=path, text=text, starts=starts)

    def locate(self, offset: int) -> Location:
        """The line and column of a character."""
        line = bisect_right(self.starts, offset)
        return Location(path=self.path, line=line, column=offset - self.starts[line - 1] + 1)

    def line(self, number: int) -> str:
        """The text of a line, 1-based, without its end."""
        if not 1 <= number <= len(self.starts):
            return ""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].rstrip("\r\n")

    def whole(self) -> Text:
        """All of the text."""
        return Text(text=self.text, offsets=range(len(self.text) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Characters with their offsets in the file.

    Attributes:
        text: The characters, escapes and quotes resolved.
        offsets: One for each character, and one for the end.
        quoted: Whether some of it stood in quotes, so that it stays one word.
        expands: Whether it holds ``$`` that a shell or an orchestrator replaces.
    """

    text: str
    offsets: Sequence[int] = field(repr=False)
    quoted: bool = False
    expands: bool = False

    @property
    def start(self) -> int:
        """The offset of the first character."""
        return self.offsets[0]

    def cut(self, start: int, end: int | None = None) -> Text:
        """A stretch of it."""
        stop = len(self.text) if end is None else end
        return Text(
            text=self.text[start:stop],
            offsets=self.offsets[start : stop + 1],
            quoted=self.quoted,
            expands=self.expands and "$" in self.text[start:stop],
        )

    def with_text(self, text: str) -> Text:
        """Other characters in the same place, all of them fixed."""
        return Text(text=text, offsets=[self.start] * (len(text) + 1), quoted=self.quoted)


class TextBuilder:
    """Collects characters and offsets."""

    def __init__(self) -> None:
        self._characters: list[str] = []
        self._offsets: list[int] = []
        self.quoted = False
        self.expands = False

    def add(self, character: str, offset: int) -> None:
        """Append one character."""
        self._characters.append(character)
        self._offsets.append(offset)

    def __bool__(self) -> bool:
        return bool(self._characters) or self.quoted

    def endswith(self, character: str) -> bool:
        """Whether that is the last character."""
        return bool(self._characters) and self._characters[-1] == character

    def is_number(self) -> bool:
        """Whether there are only digits."""
        return bool(self._characters) and all(c.isdigit() for c in self._characters)

    def take(self, end: int) -> Text:
        """The text so far; the builder is empty afterwards."""
        made = Text(
            text="".join(self._characters),
            offsets=[*self._offsets, end],
            quoted=self.quoted,
            expands=self.expands,
        )
        self.__init__()  # type: ignore[misc]
        return made
