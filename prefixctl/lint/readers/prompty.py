"""Prompty: YAML front matter, then a template with ``system:``, ``user:`` lines."""

from __future__ import annotations

from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.braces import check_blocks
from prefixctl.lint.evaluate.state import Loader, no_template
from prefixctl.lint.readers.front_matter import read_front
from prefixctl.lint.readers.text import in_file, text_block
from prefixctl.lint.source import Origin, Source, UnreadableError

SUFFIX = ".prompty"
_BRACES = frozenset(["mustache", "handlebars"])


def read_prompty(source: Source, *, loader: Loader = no_template) -> Document:
    """Read a prompty file. Its front matter is no part of the prompt.

    Raises:
        UnreadableError: If the front matter or the template cannot be parsed.
    """
    front = read_front(source)
    if front is None and source.text.startswith("---"):
        raise UnreadableError("broken front matter: the second '---' is missing")
    start = front.end if front else 0
    kind = ""
    if front:
        kind = front.text("template") or front.text("template", "type")
        kind = kind or front.text("template", "format") or front.text("model", "template")
    origin = Origin(source, start)
    text = source.text[start:]
    if kind.lower() in _BRACES:
        try:
            check_blocks(text)
        except UnreadableError as exc:
            raise in_file(exc, text, origin) from exc
        block = Block(text=text, syntax=Syntax.BRACES, origin=origin)
    else:
        block = text_block(text, origin, template="{{" in text or "{%" in text)
    return Document(path=source.path, format="prompty", blocks=(block,), loader=loader)
