"""What text with ``$name`` and ``${name}`` prints: string.Template, shell, configuration files."""

from __future__ import annotations

import re

from prefixctl.lint.evaluate.names import cause_of
from prefixctl.lint.evaluate.value import Hole, Site, Value, concat, hole_value, text_value

_FIELD = re.compile(r"\$\$|\$(?P<name>[A-Za-z_]\w*)|\$\{\s*(?P<braced>[A-Za-z_][\w.]*)[^{}\n]*\}")


def read_dollar(text: str) -> Value:
    """The text and holes of a text with dollar names."""
    printed: list[Value] = []
    at = 0
    for field in _FIELD.finditer(text):
        printed.append(text_value(text[at : field.start()]))
        at = field.end()
        name = field["name"] or field["braced"]
        if name is None:
            printed.append(text_value("$"))
            continue
        place = Site(1, offset=field.start())
        printed.append(hole_value(Hole(cause_of(name), place, place)))
    printed.append(text_value(text[at:]))
    return concat(printed)


def has_dollar_names(text: str) -> bool:
    """Whether a text has at least one ``$name``."""
    return any(m["name"] or m["braced"] for m in _FIELD.finditer(text))
