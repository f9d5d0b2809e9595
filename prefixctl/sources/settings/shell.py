"""Shell text split into commands and words, as a POSIX shell would. Nothing is run or replaced."""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.sources.settings.text import Text, TextBuilder

_ENDS = frozenset(";\n|&()")
_BLANK = frozenset(" \t\r")
_ESCAPED_IN_QUOTES = frozenset('"\\$`')


def commands(text: Text) -> Iterator[list[Text]]:
    """The commands of a text, each as its words; redirections and comments are left out.

    An array (``NAME=(a b)``) is a command whose first word ends with ``=(``.
    """
    return _Lexer(text).run()


class _Lexer:
    def __init__(self, text: Text) -> None:
        self._source = text
        self._text = text.text
        self._at = 0
        self._word = TextBuilder()
        self._words: list[Text] = []
        self._array = False
        self._drop = False
        self._heredocs: list[str] = []
        self._heredoc_next = False

    def run(self) -> Iterator[list[Text]]:
        while self._at < len(self._text):
            char = self._text[self._at]
            if self._text.startswith(("\\\n", "\\\r\n"), self._at):
                self._at = self._text.index("\n", self._at) + 1
            elif char in _BLANK or (char == "\n" and self._array):
                self._end_word()
                self._at += 1
            elif char == "#" and not self._word:
                self._at = self._line_end()
            elif char in "<>" or self._text.startswith("&>", self._at):
                self._redirect()
            elif char == "(" and self._word.endswith("="):
                self._array = True
                self._add(char)
                self._end_word()
            elif char in _ENDS:
                yield from self._end_command(char)
            else:
                self._character(char)
        self._end_word()
        if self._words:
            yield self._words

    def _end_command(self, char: str) -> Iterator[list[Text]]:
        self._end_word()
        self._at += 1
        self._array = False
        if self._words:
            yield self._words
        self._words = []
        if char == "\n" and self._heredocs:
            self._skip_heredocs()

    def _character(self, char: str) -> None:
        if char == "\\":
            self._at += 1
            if self._at < len(self._text):
                self._add(self._text[self._at])
        elif char == "'":
            self._single()
        elif char == '"':
            self._double()
        elif char in "$`":
            self._expansion(char)
        else:
            self._add(char)

    def _add(self, char: str) -> None:
        self._word.add(char, self._source.offsets[self._at])
        self._at += 1

    def _end_word(self) -> None:
        if not self._word:
            return
        word = self._word.take(self._source.offsets[self._at])
        if self._heredoc_next:
            self._heredocs.append(word.text)
            self._heredoc_next = False
        elif self._drop:
            self._drop = False
        else:
            self._words.append(word)

    def _single(self) -> None:
        self._word.quoted = True
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != "'":
            self._add(self._text[self._at])
        self._at = min(self._at + 1, len(self._text))

    def _double(self) -> None:
        self._word.quoted = True
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != '"':
            char = self._text[self._at]
            following = self._text[self._at + 1 : self._at + 2]
            if char == "\\" and following == "\n":
                self._at += 2
            elif char == "\\" and following in _ESCAPED_IN_QUOTES and following:
                self._at += 1
                self._add(following)
            elif char in "$`":
                self._expansion(char)
            else:
                self._add(char)
        self._at = min(self._at + 1, len(self._text))

    def _expansion(self, char: str) -> None:
        """Keep ``$NAME``, ``${...}``, ``$(...)`` and backquotes as they are written."""
        following = self._text[self._at + 1 : self._at + 2]
        self._word.expands = True
        closing = {"(": ")", "{": "}"}.get(following) if char == "$" else "`"
        if closing is None:
            self._add(char)
            return
        end = self._closing(following, closing) if char == "$" else self._backquote()
        while self._at < end:
            self._add(self._text[self._at])

    def _closing(self, opening: str, closing: str) -> int:
        depth = 0
        for at in range(self._at + 1, len(self._text)):
            depth += (self._text[at] == opening) - (self._text[at] == closing)
            if depth == 0:
                return at + 1
        return len(self._text)

    def _backquote(self) -> int:
        found = self._text.find("`", self._at + 1)
        return found + 1 if found >= 0 else len(self._text)

    def _redirect(self) -> None:
        if self._word.is_number():
            self._word = TextBuilder()
        self._end_word()
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "<>&|-":
            self._at += 1
        operator = self._text[start : self._at]
        self._heredoc_next = operator in {"<<", "<<-"}
        self._drop = not self._heredoc_next and operator[-1] != "-"

    def _line_end(self) -> int:
        found = self._text.find("\n", self._at)
        return found if found >= 0 else len(self._text)

    def _skip_heredocs(self) -> None:
        for delimiter in self._heredocs:
            while self._at < len(self._text):
                end = self._line_end()
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if line.strip() == delimiter:
                    break
        self._heredocs.clear()
