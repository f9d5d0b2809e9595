"""Handlebars and Mustache, dotprompt (.prompt) and Semantic Kernel's skprompt.txt."""

from __future__ import annotations

import re

from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.braces import check_blocks
from prefixctl.lint.readers.front_matter import body_start, read_front
from prefixctl.lint.readers.text import in_file
from prefixctl.lint.source import Origin, Source, UnreadableError

SUFFIXES = frozenset([".hbs", ".handlebars", ".mustache"])
_HELPERS = re.compile(
    r"\{\{[~\s]*(?:role\s+[\"']|media\s+url=|history\b|section\s+[\"']|[#/^](?:if|each|unless|with)\b"
    r"|>\s*\w|!|else\s*\}\}|@\w)"
)
_JINJA = re.compile(r"\{%[-+]?\s*\w")
_DOTPROMPT_KEYS = ("model", "input", "output", "config", "variant", "tools", "name", "description")
_KERNEL = re.compile(r"\{\{\s*(?:\$\w|[\w.]+\s+\$\w|[A-Za-z]\w*\.[A-Z]\w*[^|{}]*\}\})")
_OPEN = re.compile(r"\{\{(?:(?!\}\}|\{\{).)*(?=\{\{|\Z)", re.DOTALL)


def is_dotprompt(source: Source) -> bool:
    """Whether a .prompt file is dotprompt: Handlebars helpers, or its front matter and no Jinja."""
    if _JINJA.search(source.text):
        return False
    if _HELPERS.search(source.text):
        return True
    end = body_start(source)
    keys = "|".join(_DOTPROMPT_KEYS)
    return bool(end and re.search(rf"^(?:{keys})\s*:", source.text[:end], re.MULTILINE))


def is_kernel(source: Source) -> bool:
    """Whether a text is a Semantic Kernel prompt: ``{{$input}}``, ``{{time.Date}}``."""
    return not _JINJA.search(source.text) and bool(_KERNEL.search(source.text))


def read_dotprompt(source: Source) -> Document:
    """Read a dotprompt file.

    Raises:
        UnreadableError: If the front matter is no YAML, or a block is not closed by its own end.
    """
    front = read_front(source)
    return _document(source, front.end if front else 0, "dotprompt")


def read_handlebars(source: Source) -> Document:
    """Read a Handlebars or Mustache file.

    Raises:
        UnreadableError: If a block is not closed by its own end.
    """
    return _document(source, body_start(source), "handlebars")


def read_kernel(source: Source) -> Document:
    """Read a Semantic Kernel prompt.

    Raises:
        UnreadableError: If an expression is not closed.
    """
    unclosed = _OPEN.search(source.text)
    if unclosed:
        line, column = source.position(unclosed.start())
        raise UnreadableError("broken template: '{{' is never closed", line=line, column=column)
    block = Block(text=source.text, syntax=Syntax.BRACES, origin=Origin(source))
    return Document(path=source.path, format="semantic-kernel", blocks=(block,))


def _document(source: Source, start: int, kind: str) -> Document:
    text, origin = source.text[start:], Origin(source, start)
    try:
        check_blocks(text)
    except UnreadableError as exc:
        raise in_file(exc, text, origin) from exc
    block = Block(text=text, syntax=Syntax.BRACES, origin=origin)
    return Document(path=source.path, format=kind, blocks=(block,))
