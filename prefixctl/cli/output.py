"""What all commands share: results to stdout, talk to stderr, one way to load the config."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from prefixctl.config import Config
    from prefixctl.errors import PrefixctlError

ERROR_SCHEMA = 1


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]


def out() -> Console:
    """The console for results (stdout). Honours NO_COLOR; wide when it is not a terminal."""
    return _console(stderr=False)


def talk() -> Console:
    """The console for progress and remarks (stderr)."""
    return _console(stderr=True)


CONTROLS = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    **dict.fromkeys(range(0x7F, 0xA0), 0xFFFD),
}
"""Control characters to what can be seen of them: foreign text must not steer the terminal."""


def clean(text: str) -> str:
    """The text with its control characters made visible."""
    return text.translate(CONTROLS)


def say(text: str, style: str = "") -> None:
    """A line of a result, as it is: no markup, no control characters."""
    out().print(clean(text), style=style or None)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON; told from its words, for errors of the parser too."""
    given = [*words][: words.index("--")] if "--" in words else [*words]
    return "--format=json" in given or ("--format", "json") in pairwise(given)


def error_value(exc: PrefixctlError) -> dict[str, Any]:
    """An error as JSON, the same for all commands."""
    return {
        "schema": ERROR_SCHEMA,
        "error": {
            "kind": type(exc).__name__.removesuffix("Error"),
            "message": exc.message,
            "path": exc.path,
            "line": exc.line,
            "column": exc.column,
            "hint": exc.hint,
            "exit_code": int(exc.exit_code),
        },
    }


def load(context: typer.Context) -> Config:
    """The configuration named by ``--config``, or the nearest one."""
    from prefixctl.config import load_config

    return load_config(context.obj)


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 200)
    return console
