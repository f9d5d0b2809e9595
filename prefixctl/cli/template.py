"""`prefixctl template`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, clean, out, print_json, say
from prefixctl.errors import ExitCode

if TYPE_CHECKING:
    from prefixctl.lint.chat.report import TemplateReport

_STYLES = {"ok": "", "warn": "yellow", "break": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("template")(template)


def template(
    file: Annotated[
        Path,
        typer.Argument(help="A chat template, or the tokenizer_config.json that holds it."),
    ],
    output: FormatOption = Format.TEXT,
) -> None:
    """Measure a chat template: what it does to the shared prefix, from turn to turn.

    Conversations of 1 to 4 turns are rendered with and without system text, tools and reasoning, at
    several times. Exits 1 if system text, tools or earlier turns change when a turn is added, 3 if
    the file holds no template that can be rendered.
    """
    from prefixctl.api.template import measure_file
    from prefixctl.lint.chat.report import to_json

    reports = measure_file(file)
    if output is Format.JSON:
        print_json(to_json(reports))
    else:
        for report in reports:
            _print(report)
    if any(r.behaviour.breaks for r in reports):
        raise typer.Exit(ExitCode.FINDINGS)


def _print(report: TemplateReport) -> None:
    from rich.table import Table
    from rich.text import Text

    from prefixctl.lint.chat.advice import rows

    say(f"{report.path} ({report.name})", "bold")
    table = Table(box=None, pad_edge=False)
    for column in ("conclusion", "value", "verdict", "advice"):
        table.add_column(column)
    for row in rows(report.behaviour):
        verdict = Text(row.verdict.value, style=_STYLES[row.verdict.value])
        table.add_row(row.name, row.value, verdict, Text(clean(row.advice)))
    out().print(table)
    behaviour = report.behaviour
    if behaviour.clock_formats:
        say(f"asks for the time as {', '.join(behaviour.clock_formats)}")
    if behaviour.needs_tools:
        say("requests without tools are refused: a server passes none where there are none")
    if behaviour.breaks:
        say("a conversation loses its shared prefix from turn to turn", "bold red")
