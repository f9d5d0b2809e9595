"""How lint's reports are printed, and what they exit with."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from prefixctl.cli.output import clean, print_json
from prefixctl.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prefixctl.core.findings import Location, Severity
    from prefixctl.lint.fix import Proposed
    from prefixctl.lint.report import LintReport


class FailOn(StrEnum):
    """The severity from which lint fails."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


class LintFormat(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    GITLAB = "gitlab"
    JUNIT = "junit"


def threshold_of(wanted: str) -> Severity | None:
    """The severity of a word of `FailOn`; None for never."""
    from prefixctl.core.findings import Severity

    return None if wanted == FailOn.NEVER.value else Severity[wanted.upper()]


def exit_of(report: LintReport, threshold: Severity | None) -> None:
    """Leave with the exit code of a report.

    Raises:
        typer.Exit: If a file could not be read, or a finding reaches the threshold.
    """
    if report.unreadable:
        raise typer.Exit(ExitCode.BAD_INPUT)
    if report.reaches(threshold):
        raise typer.Exit(ExitCode.FINDINGS)


def print_report(
    report: LintReport,
    output: LintFormat,
    threshold: Severity | None,
    *,
    more: Mapping[str, Any] | None = None,
    fixes: Mapping[tuple[str, Location], Proposed] | None = None,
) -> None:
    """Print a report; `more` is added to its JSON, and `fixes` to its SARIF."""
    from prefixctl.lint.formats.github import to_github
    from prefixctl.lint.formats.gitlab import to_gitlab
    from prefixctl.lint.formats.junit import to_junit
    from prefixctl.lint.formats.sarif import to_sarif
    from prefixctl.lint.report import to_json
    from prefixctl.lint.text import to_text

    if output is LintFormat.TEXT:
        typer.echo(clean(to_text(report)))
    elif output is LintFormat.GITHUB:
        typer.echo(clean(to_github(report)))
    elif output is LintFormat.JUNIT:
        typer.echo(clean(to_junit(report, threshold)))
    elif output is LintFormat.JSON:
        print_json({**to_json(report), **(more or {})})
    else:
        sarif = output is LintFormat.SARIF
        print_json(to_sarif(report, fixes) if sarif else to_gitlab(report))
