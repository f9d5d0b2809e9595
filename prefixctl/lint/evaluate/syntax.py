"""Jinja2 source -> syntax tree, with the place of every print statement."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension, do, i18n, loopcontrols
from jinja2.parser import Parser

from prefixctl.lint.source import UnreadableError

_TAG = re.compile(r"\{%[-+]?\s*([A-Za-z_]\w*)")
_KNOWN_TAGS = frozenset(
    ["for", "if", "elif", "else", "endif", "endfor", "block", "endblock", "extends", "print",
     "macro", "endmacro", "include", "from", "import", "set", "endset", "with", "endwith",
     "autoescape", "endautoescape", "call", "endcall", "filter", "endfilter", "raw", "endraw",
     "break", "continue", "do", "trans", "endtrans", "pluralize"]
)  # fmt: skip
_MARKUP = re.compile(
    r"(?P<skip>\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\})"
    r"|\{%(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^'\"])*?%\}"
    r"|(?P<print>\{\{)(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^'\"])*?\}\}",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template.

    Attributes:
        text: The source.
        tree: The syntax tree.
        prints: id of a printed expression's node -> index of its print statement.
    """

    text: str
    tree: nodes.Template
    prints: dict[int, int]
    _offsets: list[int] = field(default_factory=list, repr=False, compare=False)

    def offset_of_print(self, index: int) -> int | None:
        """Where the opening braces of a print statement stand."""
        if not self._offsets:
            found = [m.start() for m in _MARKUP.finditer(self.text) if m["print"]]
            if len(found) != len(self.prints):
                found = _lexed_offsets(self.text)
            self._offsets.extend(found)
        return self._offsets[index] if index < len(self._offsets) else None


def parse(text: str, *, chat: bool = False) -> Template:
    """Parse a template. Tags that come in pairs and are no Jinja2 tags print their body.

    Args:
        text: The source.
        chat: Whether blocks are trimmed as for a chat template.

    Raises:
        UnreadableError: With the line of the first thing that does not parse.
    """
    custom = _custom_tags(text)
    try:
        tree = _environment(custom, chat=chat).parse(text)
    except TemplateSyntaxError as exc:
        raise UnreadableError(
            f"broken template: {exc.message}", line=exc.lineno or 1, advice=_advice(text)
        ) from exc
    except RecursionError as exc:
        raise UnreadableError("broken template: nested too deeply") from exc
    prints: dict[int, int] = {}
    try:
        _number_prints(tree.body, prints)
    except RecursionError as exc:
        raise UnreadableError("broken template: nested too deeply") from exc
    return Template(text, tree, prints)


def _custom_tags(text: str) -> frozenset[str]:
    """Unknown tags that print their body, because an end tag follows, or nothing at all."""
    tags = set(_TAG.findall(text)) - _KNOWN_TAGS
    if not tags:
        return frozenset()
    paired = {t for t in tags if f"end{t}" in tags}
    single = {
        t
        for t in tags - paired - {f"end{t}" for t in paired}
        if not t.startswith("end") and not difflib.get_close_matches(t, _KNOWN_TAGS, 1, 0.7)
    }
    return frozenset({f"+{t}" for t in paired} | {f"-{t}" for t in single})


def _advice(text: str) -> str:
    for tag in sorted(set(_TAG.findall(text)) - _KNOWN_TAGS):
        near = difflib.get_close_matches(tag, _KNOWN_TAGS, 1, 0.6)
        if near:
            return f"did you mean '{near[0]}' instead of '{tag}'?"
    return ""


@lru_cache(maxsize=64)
def _environment(custom: frozenset[str], *, chat: bool) -> Environment:
    extensions: list[type[Extension]] = [do, loopcontrols, i18n]
    if custom:
        extensions.append(_extension(custom))
    return Environment(  # noqa: S701 - prompts are no HTML, and nothing is rendered
        trim_blocks=chat, lstrip_blocks=chat, extensions=extensions
    )


def _extension(custom: frozenset[str]) -> type[Extension]:
    paired = {t[1:] for t in custom if t.startswith("+")}

    class CustomTags(Extension):
        tags = {t[1:] for t in custom}  # noqa: RUF012 - the attribute's type is jinja2's

        def parse(self, parser: Parser) -> list[nodes.Node]:
            name = next(parser.stream).value
            while not parser.stream.current.test("block_end"):
                if parser.stream.current.test("eof"):
                    parser.fail(f"the tag '{name}' is never closed")
                next(parser.stream)
            if name not in paired:
                return []
            return parser.parse_statements((f"name:end{name}",), drop_needle=True)

    return CustomTags


def _number_prints(body: Iterable[nodes.Node], prints: dict[int, int]) -> None:
    """Count the print statements in the order of the source; expressions hold none."""
    for node in body:
        if isinstance(node, nodes.Output):
            for printed in node.nodes:
                if not isinstance(printed, nodes.TemplateData):
                    prints[id(printed)] = len(prints)
            continue
        for name in ("body", "elif_", "else_"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                _number_prints(inner, prints)


def _lexed_offsets(text: str) -> list[int]:
    """The same offsets by Jinja2's own lexer, which is slower: tokens are looked up in order."""
    found, at = [], 0
    try:
        for _, kind, token in _environment(frozenset(), chat=False).lex(text):
            at = text.index(token, at)
            if kind == "variable_begin":
                found.append(at)
            at += len(token)
    except (TemplateSyntaxError, ValueError):
        return found
    return found
