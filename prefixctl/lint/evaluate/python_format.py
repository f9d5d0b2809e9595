"""What a Python format text prints: ``{name}``, ``{user.name}``, ``{now:%H:%M}``."""

from __future__ import annotations

import re

from prefixctl.lint.evaluate import clocks
from prefixctl.lint.evaluate.names import cause_of
from prefixctl.lint.evaluate.value import Hole, Site, Value, concat, hole_value, text_value

_FIELD = re.compile(
    r"\{\{|\}\}|\{(?P<name>[^\W\d]\w*(?:\.\w+|\[[^\]{}\n]*\])*)(?:![rsa])?(?::(?P<format>[^{}\n]*))?\}"
)
_INDEX = re.compile(r"\[([^\]]*)\]")


def read_python_format(text: str) -> Value:
    """The text and holes of a Python format text."""
    printed: list[Value] = []
    at = 0
    for field in _FIELD.finditer(text):
        printed.append(text_value(text[at : field.start()]))
        at = field.end()
        if field["name"] is None:
            printed.append(text_value(field.group()[0]))
            continue
        name = _INDEX.sub(lambda m: "." + m.group(1).strip("'\""), field["name"])
        place = Site(1, offset=field.start())
        value = hole_value(Hole(cause_of(name), place, place))
        pattern = field["format"]
        printed.append(clocks.formatted(value, pattern if pattern and "%" in pattern else None))
    printed.append(text_value(text[at:]))
    return concat(printed)


def has_fields(text: str) -> bool:
    """Whether a text has at least one ``{name}``."""
    return any(m["name"] for m in _FIELD.finditer(text))
