"""`prefixctl lint` and `prefixctl rule`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, clean, load, print_json
from prefixctl.errors import ExitCode


class FailOn(StrEnum):
    """The severity from which lint fails."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("lint")(lint)
    app.command("rule")(rule)


def lint(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files and folders; the governed prompts if omitted."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Count tokens and blocks of this target; the only one if omitted."),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(help="Severity from which to exit 1; lint.fail_on if omitted."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Find what ends the shared prefix of prompts, and what is lost behind it.

    Exits 1 for findings at or above --fail-on, 3 if a file cannot be read or nothing was found.
    """
    from prefixctl.api.lint import lint_paths
    from prefixctl.core.findings import Severity
    from prefixctl.lint.report import to_json
    from prefixctl.lint.text import to_text

    config = load(context)
    report = lint_paths(config, paths or (), target=target)
    if output is Format.JSON:
        print_json(to_json(report))
    else:
        typer.echo(clean(to_text(report)))
    wanted = fail_on.value if fail_on else config.lint.fail_on
    threshold = None if wanted == FailOn.NEVER.value else Severity[wanted.upper()]
    if report.unreadable:
        raise typer.Exit(ExitCode.BAD_INPUT)
    if report.reaches(threshold):
        raise typer.Exit(ExitCode.FINDINGS)


def rule(
    name: Annotated[
        str | None, typer.Argument(help="Id or name, for example PFX101; all if omitted.")
    ] = None,
) -> None:
    """Show the page of a lint rule, or list all rules."""
    from prefixctl.lint.pages import find_page, rule_pages

    if name is not None:
        typer.echo(find_page(name).markdown, nl=False)
        return
    for page in rule_pages():
        made = page.rule
        typer.echo(f"{made.id}  {made.severity.label:8} {made.name}")
