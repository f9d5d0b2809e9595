"""Templates with delimiters of their own, read as if they had Jinja2's.

Each mark has two characters, as Jinja2's have, so that a text keeps all its places. Jinja2's own
marks mean nothing there and become other characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from prefixctl.config import JINJA_MARKS, DelimitersConfig
from prefixctl.lint.evaluate.state import Loader
from prefixctl.lint.source import Source

_HARMLESS = {"{{": "[{", "{%": "[%", "{#": "[#"}


def with_delimiters(source: Source, wanted: DelimitersConfig | None) -> Source:
    """A file with Jinja2's delimiters in the place of its own; its lines are shown as they are."""
    if wanted is None:
        return source
    return replace(source, text=_translated(source.text, wanted), shown=source.text)


def loading(loader: Loader, wanted: DelimitersConfig | None) -> Loader:
    """The same for the templates that a file includes."""
    if wanted is None:
        return loader

    def load(name: str) -> str | None:
        text = loader(name)
        return None if text is None else _translated(text, wanted)

    return load


def _translated(text: str, wanted: DelimitersConfig) -> str:
    table = {**_HARMLESS, **dict(_pairs(wanted))}
    found = re.compile("|".join(map(re.escape, sorted(table))))
    return found.sub(lambda match: table[match.group()], text)


def _pairs(wanted: DelimitersConfig) -> Iterator[tuple[str, str]]:
    """Each mark of the file with the one of Jinja2 that it stands for."""
    for name, own in JINJA_MARKS.items():
        yield from zip(getattr(wanted, name) or own, own, strict=True)
