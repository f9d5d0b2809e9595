"""Types of fields that several parts of prefixctl.yaml use."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, WithJsonSchema

from prefixctl.core.prompt import Volatility


def is_name(value: str) -> bool:
    """Whether something is the name of a prompt, a target or a tenant."""
    good = all(c.isalnum() or c in "-_." for c in value)
    return bool(value) and good and not value.startswith(".")


def valid_name(value: str) -> str:
    """The name of a prompt or target, if it is one; ValueError if not."""
    if not is_name(value):
        raise ValueError(f"'{value}' is no name: letters, digits, '-', '_' and '.'")
    return value


def _finite(value: JsonValue) -> JsonValue:
    json.dumps(value, allow_nan=False)
    return value


def _word(value: object) -> object:
    """YAML 1.1 takes a bare `on` or `off` for a truth value."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


OnOff = BeforeValidator(_word)
FiniteJson = Annotated[JsonValue, AfterValidator(_finite)]
BlockSize = Annotated[int, Field(gt=0, le=2**20)]
"""Tokens; above the largest block of any engine, or unit of any hybrid model."""
Name = Annotated[str, AfterValidator(valid_name)]


def _scope(value: object) -> object:
    labels = [v.label for v in Volatility]
    if value not in labels:
        raise ValueError(f"'{value}' is no scope; choose from {', '.join(labels)}")
    return Volatility[str(value).upper()]


Scope = Annotated[
    Volatility,
    BeforeValidator(_scope),
    WithJsonSchema({"enum": [v.label for v in Volatility], "type": "string"}),
]
"""How often a value changes, by the word for it."""
Patterns = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
"""One glob pattern or several."""
