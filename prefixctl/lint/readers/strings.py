"""What the template in a string literal prints, with its places in the file."""

from __future__ import annotations

import re
from dataclasses import replace

from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.dollar import has_dollar_names
from prefixctl.lint.evaluate.python_format import has_fields
from prefixctl.lint.evaluate.value import (
    Choice,
    Hole,
    Loop,
    Site,
    Text,
    Value,
    map_holes,
    text_value,
)
from prefixctl.lint.evaluate.whole import read_block
from prefixctl.lint.readers.literals import Literal
from prefixctl.lint.readers.text import text_block
from prefixctl.lint.source import Origin, Source, UnreadableError

MAX_TEMPLATE_CHARS = 200_000
"""A longer string in source code is data."""
_DOUBLED = re.compile(r"\{\{|\}\}")
_STATEMENT = re.compile(r"\{%[-+]?\s*\w")


def literal_value(source: Source, literal: Literal, syntax: Syntax | None = None) -> Value:
    """What a literal prints, taken for a template.

    Args:
        source: The file.
        literal: The literal.
        syntax: The syntax of its placeholders; None if its looks must say.
    """
    text = literal.text
    if ("{" not in text and "$" not in text) or len(text) > MAX_TEMPLATE_CHARS:
        return text_value(text)
    block = _block(source, text, syntax)
    if block.syntax is Syntax.PLAIN:
        return text_value(text)
    document = Document(path=source.path, format="", blocks=(block,))
    value = read_block(document, block)

    def placed(hole: Hole) -> Hole:
        origin = Site(1, offset=literal.place(block.offset(hole.origin)))
        site = (
            origin if hole.site is None else Site(1, offset=literal.place(block.offset(hole.site)))
        )
        return replace(hole, origin=origin, site=site)

    return map_holes(value, placed)


def _block(source: Source, text: str, syntax: Syntax | None) -> Block:
    origin = Origin(source)
    if syntax is None and _is_format(text):
        syntax = Syntax.PYTHON
    if syntax is not None and syntax is not Syntax.JINJA:
        return Block(text=text, syntax=syntax, origin=origin)
    try:
        block = text_block(text, origin, template=syntax is Syntax.JINJA)
    except UnreadableError:
        return Block(text=text, syntax=Syntax.BRACES, origin=origin)
    if block.syntax is Syntax.PLAIN and has_dollar_names(text):
        return Block(text=text, syntax=Syntax.DOLLAR, origin=origin)
    return block


def _is_format(text: str) -> bool:
    """Whether single braces hold names: then double ones are braces that are meant as such."""
    return not _STATEMENT.search(text) and has_fields(_DOUBLED.sub("", text))


def static_text(value: Value) -> str:
    """The static text of a value, with a gap where something is printed; of the first choice."""
    parts = []
    for part in value.parts:
        if isinstance(part, Text):
            parts.append(part.text)
        elif isinstance(part, Choice):
            parts.append(max((static_text(o) for o in part.options), key=len, default=""))
        elif isinstance(part, Loop):
            parts.append(static_text(part.body))
        else:
            parts.append(" ")
    return "".join(parts)
