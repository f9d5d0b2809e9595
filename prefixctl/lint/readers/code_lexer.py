"""String literals and comments of Go, TypeScript, Java and their like, without a parser."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from prefixctl.lint.source import Source, UnreadableError

_SLASHES = frozenset([".go", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".vue",
                      ".svelte", ".java", ".kt", ".kts", ".scala", ".swift", ".cs", ".rs", ".dart",
                      ".groovy", ".php"])  # fmt: skip
_HASHES = frozenset([".rb", ".sh", ".bash", ".php", ".ex", ".exs", ".pl", ".r"])
SUFFIXES = _SLASHES | _HASHES
_BACKTICKS = frozenset([".go", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".vue",
                        ".svelte"])  # fmt: skip
_TRIPLE = frozenset([".java", ".kt", ".kts", ".scala", ".swift", ".cs", ".dart", ".groovy", ".ex",
                     ".exs"])  # fmt: skip
_SINGLE = _BACKTICKS - {".go"} | _HASHES | {".dart", ".groovy"}
_SCRIPTS = _BACKTICKS - {".go"}
_TICK_MARK = re.compile(r"\\.|`|\$\{|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A string literal.

    Attributes:
        start: Offset of its first character, quotes and prefix included.
        body: Offset behind the opening quote.
        body_end: Offset of the closing quote.
        end: Offset behind it.
        raw: Whether a backslash is a backslash.
        interpolated: Whether ``${...}`` in it is an expression of a script.
        depth: How many braces are open.
    """

    start: int
    body: int
    body_end: int
    end: int
    raw: bool
    interpolated: bool
    depth: int


def tokens(source: Source, suffix: str) -> Iterator[Token]:
    """The string literals of a file in order.

    Raises:
        UnreadableError: If one that may span lines is never closed.
    """
    text, at, depth = source.text, 0, 0
    pattern, closings = _pattern(suffix), _Closings(text)
    while found := pattern.search(text, at):
        at = found.end()
        kind = found.lastgroup
        if kind == "brace":
            depth += 1 if found.group() == "{" else -1
        elif kind == "tick":
            end = _closing_tick(text, at) if suffix in _SCRIPTS else text.find("`", at)
            if end < 0:
                raise _unclosed(source, found.start(), "`")
            scripted = suffix in _SCRIPTS
            yield Token(start=found.start(), body=at, body_end=end, end=end + 1, raw=not scripted,
                        interpolated=scripted, depth=depth)  # fmt: skip
            at = end + 1
        elif kind == "open":
            raise _unclosed(source, found.start(), found.group())
        elif kind in {"rust", "heredoc"}:
            closing = closings.find(found, at)
            if closing is None and kind == "rust":
                raise _unclosed(source, found.start(), found.group())
            if closing is not None:
                yield Token(start=found.start(), body=at, body_end=closing[0], end=closing[1],
                            raw=True, interpolated=False, depth=depth)  # fmt: skip
                at = closing[1]
        elif kind in {"long", "plain", "raw"}:
            body, body_end = found.span(f"{kind}_body")
            yield Token(start=found.start(), body=body, body_end=body_end, end=found.end(),
                        raw=kind == "raw", interpolated=False, depth=depth)  # fmt: skip


class _Closings:
    """Where here-documents and raw strings end. The lines that may end one are found once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: dict[str, list[int]] | None = None

    def find(self, opening: re.Match[str], at: int) -> tuple[int, int] | None:
        """The offsets of and behind what closes an opening, or None."""
        if opening.lastgroup == "rust":
            mark = '"' + opening["hashes"]
            end = self._text.find(mark, at)
            return None if end < 0 else (end, end + len(mark))
        if self._lines is None:
            self._lines = defaultdict(list)
            for line in re.finditer(r"(?m)^[ \t]*([A-Z_]\w*)\b", self._text):
                self._lines[line[1]].append(line.start())
        starts = self._lines.get(opening["tag"], [])
        index = bisect.bisect_left(starts, at)
        if index == len(starts):
            return None
        return starts[index], self._text.index(opening["tag"], starts[index]) + len(opening["tag"])


def _unclosed(source: Source, offset: int, quote: str) -> UnreadableError:
    line, column = source.position(offset)
    return UnreadableError(f"broken source: {quote} is never closed", line=line, column=column)


@lru_cache(maxsize=64)
def _pattern(suffix: str) -> re.Pattern[str]:
    kinds = []
    if suffix in _SLASHES:
        kinds.append(r"//[^\n]*|/\*.*?(?:\*/|\Z)")
    if suffix in _HASHES:
        kinds.append(r"(?m:(?:^|(?<=[\s;]))#[^\n]*)")
        kinds.append(r"(?P<heredoc><<[<~-]?\s*(?P<q>['\"]?)(?P<tag>[A-Z_]\w*)(?P=q)[^\n]*\n)")
    if suffix in _SCRIPTS:
        kinds.append(
            r"[=(,:!&|?][ \t]{0,8}/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.){0,99}+\]){1,200}+/"
        )
    if suffix == ".rs":
        kinds.append(r"(?P<rust>\br(?P<hashes>#*)\")")
    if suffix == ".cs":
        kinds.append(r"(?P<raw>(?:@\$?|\$@)\"(?P<raw_body>(?:[^\"]|\"\")*)\")")
    if suffix in _TRIPLE:
        kinds.append(r"(?P<long>\"\"\"(?P<long_body>.*?)\"\"\")|(?P<open>\"\"\")")
    if suffix in _BACKTICKS:
        kinds.append(r"(?P<tick>`)")
    lines = r"\\\n]|\\.)" if suffix != ".rs" else r"\\]|\\.)"
    kinds.append(r"(?P<plain>(?P<pq>[\"" + ("'" if suffix in _SINGLE else "") + r"])"
                 r"(?P<plain_body>(?:(?!(?P=pq))[^" + lines + r"*)(?P=pq))")  # fmt: skip
    if suffix not in _SINGLE:
        kinds.append(r"'(?:[^'\\\n]|\\.){1,8}'")
    kinds.append(r"(?P<brace>[{}])")
    return re.compile("|".join(kinds), re.DOTALL)


def _closing_tick(text: str, at: int) -> int:
    """The backtick that closes a template literal, or -1.

    A literal inside one of its expressions is passed over, as far as its next backtick.
    """
    depth = 0
    while mark := _TICK_MARK.search(text, at):
        at = mark.end()
        kind = mark.group()
        if depth == 0 and kind == "`":
            return mark.start()
        if depth == 0:
            depth = 1 if kind == "${" else 0
        elif kind == "`":
            at = text.find("`", at) + 1
            if not at:
                return -1
        elif kind[0] != "\\":
            depth += -1 if kind == "}" else 1
    return -1


def interpolations(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The expressions ``${...}`` of a template literal: offsets of ``$`` and behind ``}``."""
    at = start
    while at < end:
        if text[at] == "\\":
            at += 2
        elif text.startswith("${", at):
            stop, depth = at + 2, 1
            while stop < end and depth:
                depth += {"{": 1, "}": -1}.get(text[stop], 0)
                stop += 1
            yield at, stop
            at = stop
        else:
            at += 1
