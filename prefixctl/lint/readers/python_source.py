"""Places in Python source: nodes, string literals, placeholders of f-strings."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass

from prefixctl.lint.evaluate.python_code import MAX_FIELDS
from prefixctl.lint.readers.literals import Literal, join, read_literal
from prefixctl.lint.source import Source, UnreadableError

_STRING = re.compile(r"(?P<prefix>[rRbBuUfF]{0,2})(?P<quote>\"\"\"|'''|\"|')")
_FORMATTED = re.compile(r"(?<!\w)(?:[rR]?[fF]|[fF][rR])(?P<quote>\"\"\"|\'\'\'|\"|\')")
_BETWEEN = re.compile(r"(?:[\s()\\]|#[^\n]*)+")
_QUOTED = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")


@dataclass(frozen=True, slots=True)
class PythonSource:
    """A Python file and its tree."""

    source: Source
    tree: ast.Module

    def place(self, node: ast.AST) -> int:
        """The offset in the file at which a node begins."""
        return self._offset(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))

    def end(self, node: ast.AST) -> int:
        """The offset in the file behind a node."""
        line = getattr(node, "end_lineno", None) or 1
        return self._offset(line, getattr(node, "end_col_offset", None) or 0)

    def _offset(self, line: int, column_bytes: int) -> int:
        start = self.source.offset(line)
        text = self.source.line(line)
        if text.isascii():
            return start + column_bytes
        return start + len(text.encode()[:column_bytes].decode(errors="ignore"))

    def literal(self, node: ast.Constant) -> Literal:
        """The text of a string constant, which may be written in several pieces."""
        pieces = [
            read_literal(self.source.text, start, end, raw="r" in prefix.lower())
            for prefix, start, end in self._pieces(node)
        ]
        literal = join(pieces)
        if literal.text == node.value:
            return literal
        return Literal(text=str(node.value), anchors=((0, self.place(node)),))

    def fields(self, node: ast.JoinedStr) -> list[int]:
        """Where the placeholders of an f-string begin; nothing if that cannot be told."""
        placeholders = [v for v in node.values if isinstance(v, ast.FormattedValue)]
        if sys.version_info >= (3, 12):
            return [self.place(v) for v in placeholders]
        found = [
            offset
            for prefix, start, end in self._pieces(node)
            if "f" in prefix.lower()
            for offset in _fields(self.source.text, start, end)
        ]
        return found if len(found) == len(placeholders) else []

    def _pieces(self, node: ast.AST) -> list[tuple[str, int, int]]:
        """Prefix, beginning and end of each literal that a node is written in."""
        text, at, stop = self.source.text, self.place(node), self.end(node)
        pieces = []
        while at < stop:
            opening = _STRING.match(text, at)
            if opening is None:
                break
            start, quote = opening.end(), opening["quote"]
            end = _closing(text, start, quote, stop)
            pieces.append((opening["prefix"], start, end))
            at = end + len(quote)
            between = _BETWEEN.match(text, at)
            at = between.end() if between else at
        return pieces


def parse_python(source: Source) -> PythonSource:
    """Parse a Python file.

    Raises:
        UnreadableError: With the place of the first thing that does not parse.
    """
    _check_fields(source)
    try:
        return PythonSource(source, ast.parse(source.text))
    except SyntaxError as exc:
        raise UnreadableError(
            f"broken Python: {exc.msg}", line=exc.lineno or 1, column=max(exc.offset or 1, 1)
        ) from exc
    except (RecursionError, MemoryError, ValueError) as exc:
        raise UnreadableError("broken Python: nested too deeply") from exc


def _check_fields(source: Source) -> None:
    """Check that no f-string has more placeholders than anybody writes.

    The time that Python's own parser needs grows with the square of their number.

    Raises:
        UnreadableError: With the place of the first one that has.
    """
    text, at = source.text, 0
    if text.count("{") <= MAX_FIELDS:
        return
    while opening := _FORMATTED.search(text, at):
        quote, start = opening["quote"], opening.end()
        at = text.find(quote if len(quote) > 1 else "\n", start)
        at = len(text) if at < 0 else at
        if text.count("{", start, at) > MAX_FIELDS:
            line, column = source.position(opening.start())
            raise UnreadableError(
                f"an f-string with more than {MAX_FIELDS:,} placeholders",
                line=line,
                column=column,
                advice="keep the prompt in a template of its own",
            )


def _closing(text: str, start: int, quote: str, stop: int) -> int:
    at = start
    while at < stop:
        if text[at] == "\\":
            at += 2
        elif text.startswith(quote, at):
            return at
        else:
            at += 1
    return stop


def _fields(text: str, start: int, end: int) -> list[int]:
    """Where the placeholders in one f-string literal begin."""
    found, at = [], start
    while at < end:
        if text.startswith(("{{", "}}"), at):
            at += 2
        elif text[at] == "{":
            found.append(at)
            at = _behind_field(text, at + 1, end)
        else:
            at += 1
    return found


def _behind_field(text: str, at: int, end: int) -> int:
    depth = 1
    while at < end and depth:
        quoted = _QUOTED.match(text, at, end)
        if quoted:
            at = quoted.end()
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at
