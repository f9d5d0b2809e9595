"""Chat templates from files: by themselves, or inside JSON as tokenizers keep them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefixctl.errors import InputError
from prefixctl.lint.source import UnreadableError, decode
from prefixctl.yamlfile import read_bytes

KEY = "chat_template"
DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTemplate:
    """One chat template of a file.

    Attributes:
        name: ``default`` unless the file gives another.
        source: The template's text.
    """

    name: str
    source: str


def read_templates(path: Path) -> tuple[NamedTemplate, ...]:
    """The chat templates of a file: a template, or a JSON file with a ``chat_template``.

    Raises:
        InputError: If the file cannot be read, or holds no template.
    """
    try:
        text = decode(read_bytes(path, InputError), str(path)).text
    except UnreadableError as exc:
        raise InputError(
            exc.message, path=str(path), line=exc.line, column=exc.column, hint=exc.advice or None
        ) from exc
    if path.suffix.lower() != ".json":
        return (NamedTemplate(name=DEFAULT_NAME, source=text),)
    found = tuple(_templates(_parsed(text, path)))
    if not found:
        raise InputError(
            f"holds no '{KEY}'", path=str(path), hint="name a template, or a tokenizer_config.json"
        )
    return found


def _parsed(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise InputError(
            f"broken JSON: {exc.msg}", path=str(path), line=exc.lineno, column=exc.colno
        ) from exc
    except RecursionError as exc:
        raise InputError("broken JSON: nested too deeply", path=str(path)) from exc


def _templates(value: Any) -> Iterator[NamedTemplate]:
    """A string, a list of named ones, or an object of them, under the key or alone."""
    if isinstance(value, dict) and KEY in value:
        value = value[KEY]
    if isinstance(value, str):
        yield NamedTemplate(name=DEFAULT_NAME, source=value)
    elif isinstance(value, list):
        for entry in value:
            if isinstance(entry, dict) and isinstance(entry.get("template"), str):
                yield NamedTemplate(name=str(entry.get("name")), source=entry["template"])
    elif isinstance(value, dict):
        for name, source in value.items():
            if isinstance(source, str) and "{" in source:
                yield NamedTemplate(name=name, source=source)
