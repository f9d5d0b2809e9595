"""Templates and texts: Jinja2, braces that are no Jinja2, Python format, plain."""

from __future__ import annotations

import re

from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.python_format import has_fields
from prefixctl.lint.evaluate.state import Loader, no_template
from prefixctl.lint.evaluate.syntax import parse
from prefixctl.lint.readers.front_matter import body_start
from prefixctl.lint.source import Origin, Source, UnreadableError

TEMPLATE_SUFFIXES = frozenset([".j2", ".jinja", ".jinja2"])
TEXT_SUFFIXES = frozenset(
    [".md", ".txt", ".prompt", ".prompty", ".tmpl", ".tpl", ".template", ".hbs", ".handlebars",
     ".mustache"]
)  # fmt: skip
_STATEMENT = re.compile(
    r"\{%[-+]?\s*(?:if|for|set|macro|include|import|from|extends|block|raw|with|call|filter|do)\b"
)
_EXPRESSION = re.compile(r"\{\{[-+~]?(?P<body>[^{}]*)\}\}")
_NAME_LIKE = re.compile(
    r"\$?[^\W\d][\w.]*(?:[(\[].*[)\]])?(?:\s*\|.*|\s+(?:or|if|~)\s.*)?", re.DOTALL
)
_FOREIGN = re.compile(r"[#/^!>&$@]|\.[A-Za-z]|[\w.-]+\s+[\"'$.\w]")
"""An expression of Handlebars or of Go, or a home-made ``include "file"``."""
_CHAT_MARKS = re.compile(
    r"\badd_generation_prompt\b|\bbos_token\b|\beos_token\b|\[['\"]role['\"]\]|\.role\b"
)
_CHAT_LOOP = re.compile(r"\{%[-+]?\s*for\s+\w+\s+in\s+\w*messages\w*|\bmessages\s*\[")


def read_text(source: Source, *, template: bool, loader: Loader = no_template) -> Document:
    """Read a file of prompt text.

    Args:
        source: The file.
        template: Whether its name says that it is a Jinja2 template.
        loader: Finds included templates.

    Raises:
        UnreadableError: If a template cannot be parsed.
    """
    start = 0 if template else body_start(source)
    chat = is_chat_template(source.text)
    block = text_block(source.text[start:], Origin(source, start), template=template, chat=chat)
    jinja = block.syntax is Syntax.JINJA
    named = {Syntax.JINJA: "jinja", Syntax.BRACES: "braces", Syntax.PYTHON: "python-format"}
    kind = "chat-template" if chat and jinja else named.get(block.syntax, "text")
    return Document(
        path=source.path, format=kind, blocks=(block,), chat=chat and jinja, loader=loader
    )


def text_block(text: str, origin: Origin, *, template: bool = False, chat: bool = False) -> Block:
    """A block of the syntax that a text seems to have.

    Raises:
        UnreadableError: If it is clearly a Jinja2 template, and broken.
    """
    syntax = Syntax.JINJA if template else _syntax(text)
    if syntax is not Syntax.JINJA:
        return Block(text=text, syntax=syntax, origin=origin)
    try:
        parsed = parse(text, chat=chat)
    except UnreadableError as exc:
        if _may_be_foreign(text, template=template):
            return Block(text=text, syntax=Syntax.BRACES, origin=origin)
        raise in_file(exc, text, origin) from exc
    return Block(text=text, syntax=Syntax.JINJA, origin=origin, template=parsed)


def is_chat_template(text: str) -> bool:
    """Whether a template makes a prompt of ``messages``, as models ship it."""
    return bool(_CHAT_LOOP.search(text) and _CHAT_MARKS.search(text))


def _syntax(text: str) -> Syntax:
    if "{" not in text:
        return Syntax.PLAIN
    if _STATEMENT.search(text):
        return Syntax.JINJA
    bodies = [m["body"].strip("+-~ \t\n") for m in _EXPRESSION.finditer(text)]
    if any(_NAME_LIKE.fullmatch(b) or _FOREIGN.match(b) for b in bodies):
        return Syntax.JINJA
    return Syntax.PYTHON if has_fields(text) else Syntax.PLAIN


def _may_be_foreign(text: str, *, template: bool) -> bool:
    if _STATEMENT.search(text):
        return False
    bodies = [m["body"].strip("+-~ \t\n") for m in _EXPRESSION.finditer(text)]
    foreign = any(_FOREIGN.match(b) for b in bodies)
    return foreign if template else foreign or text.count("{{") != len(bodies)


def in_file(exc: UnreadableError, text: str, origin: Origin) -> UnreadableError:
    """The same error with its place in the file."""
    offset = 0
    for _ in range(exc.line - 1):
        offset = text.find("\n", offset) + 1
    line, column = origin.position(text, offset)
    return UnreadableError(exc.message, line=line, column=column, advice=exc.advice)
