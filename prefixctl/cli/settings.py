"""`prefixctl settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prefixctl.cli.lint_modes import known_of
from prefixctl.cli.lint_report import FailOn, LintFormat, exit_of, print_report, threshold_of
from prefixctl.cli.output import clean, load
from prefixctl.errors import UsageError


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
    baseline: Annotated[
        Path | None,
        typer.Option(help="File with known findings, which do not fail; lint.baseline if omitted."),
    ] = None,
    save_as: Annotated[
        Path | None,
        typer.Option("--write-baseline", help="Write all findings to this file, and exit 0."),
    ] = None,
    output: Annotated[
        LintFormat, typer.Option("--format", help="How to print the result.")
    ] = LintFormat.TEXT,
) -> None:
    """Find launch settings that keep prefixes from being reused, reported or isolated.

    Reads files only and starts nothing. Exits 1 for findings at or above --fail-on, 3 if a file
    cannot be read or no start of an engine was found.
    """
    from prefixctl.api.settings import check_launch_files, save_settings_baseline

    if baseline and save_as:
        raise UsageError("--baseline and --write-baseline exclude each other")
    config = load(context)
    known = None if save_as else known_of(config, baseline)
    result = check_launch_files(config, files, target=target, baseline=known)
    threshold = threshold_of(fail_on.value if fail_on else config.lint.fail_on)
    passed_over = {"passed_over": list(result.passed_over)}
    print_report(result.report, output, threshold, more=passed_over)
    if output is LintFormat.TEXT:
        for path in result.passed_over:
            typer.echo(clean(f"{path}: starts no engine"), err=True)
    if save_as is not None:
        count = save_settings_baseline(config, result.report, save_as)
        typer.echo(clean(f"{save_as}: {count} findings written"), err=True)
        threshold = None
    exit_of(result.report, threshold)
