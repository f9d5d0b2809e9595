"""Texts whose placeholders are filled by the arguments of a call: ``%s``, ``%(name)s``, ``{}``."""

from __future__ import annotations

import re
from collections.abc import Callable

from prefixctl.lint.evaluate.value import (
    Choice,
    Hole,
    Part,
    Text,
    Value,
    concat,
    hole_value,
    text_value,
)

PERCENT = re.compile(r"%(?:\((?P<name>\w+)\)|\d+\$)?[-+#0 ]*\d*(?:\.\d+)?[sdifrvqxwTg](?![a-z])|%%")
BRACES = re.compile(r"\{(?P<name>\d*)(?:![rsa])?(?::[^{}]*)?\}")
FIELDS = re.compile(r"\{(?P<name>\w*)(?:![rsa])?(?::[^{}]*)?\}")


def fill(
    value: Value, placeholders: re.Pattern[str], argument: Callable[[str | None], Value]
) -> Value:
    """A text with what arguments print in place of its placeholders.

    Args:
        value: The text; what it prints already stays.
        placeholders: Finds them; the group ``name`` says which argument is meant.
        argument: What the argument of that name prints, or the next one for None.
    """
    printed: list[Value] = []
    for part in value.parts:
        if not isinstance(part, Text):
            printed.append(alone(part))
            continue
        at = 0
        for found in placeholders.finditer(part.text):
            printed.append(text_value(part.text[at : found.start()]))
            printed.append(text_value("%") if found.group() == "%%" else argument(found["name"]))
            at = found.end()
        printed.append(text_value(part.text[at:]))
    return concat(printed)


def alone(part: Part) -> Value:
    """One part as a value."""
    if isinstance(part, Hole):
        return hole_value(part)
    if isinstance(part, Text):
        return text_value(part.text)
    inner = part.options if isinstance(part, Choice) else (part.body,)
    holes = tuple(dict.fromkeys(h for v in inner for h in v.holes))
    size = 1 + sum(v.size for v in inner)
    own = part.condition if isinstance(part, Choice) else part.source
    deciding = tuple(
        dict.fromkeys(h for group in (own, *(v.deciding for v in inner)) for h in group)
    )
    return Value((part,), holes, size, deciding)
