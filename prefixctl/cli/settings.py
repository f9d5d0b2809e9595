"""`prefixctl settings`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.lint import FailOn
from prefixctl.cli.output import Format, FormatOption, clean, load, print_json
from prefixctl.errors import ExitCode

if TYPE_CHECKING:
    from prefixctl.api.settings import SettingsResult
    from prefixctl.lint.report import LintReport


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("settings")(settings)


def settings(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Shell scripts, Dockerfiles, compose files, Helm values, Kubernetes manifests, "
            "or folders of them."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="Compare all launches with this target; each with its model's if omitted."
        ),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(help="Severity from which to exit 1; lint.fail_on if omitted."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Find launch settings that keep prefixes from being reused, reported or isolated.

    Reads files only and starts nothing. Exits 1 for findings at or above --fail-on, 3 if a file
    cannot be read or no start of an engine was found.
    """
    from prefixctl.api.settings import check_launch_files

    config = load(context)
    result = check_launch_files(config, files, target=target)
    _show(result, output)
    if result.report.unreadable:
        raise typer.Exit(ExitCode.BAD_INPUT)
    if _fails(result.report, fail_on.value if fail_on else config.lint.fail_on):
        raise typer.Exit(ExitCode.FINDINGS)


def _show(result: SettingsResult, output: Format) -> None:
    from prefixctl.lint.report import to_json
    from prefixctl.lint.text import to_text

    if output is Format.JSON:
        print_json(to_json(result.report) | {"passed_over": list(result.passed_over)})
        return
    typer.echo(clean(to_text(result.report)))
    for path in result.passed_over:
        typer.echo(clean(f"{path}: starts no engine"), err=True)


def _fails(report: LintReport, wanted: str) -> bool:
    from prefixctl.core.findings import Severity

    return wanted != FailOn.NEVER.value and report.reaches(Severity[wanted.upper()])
