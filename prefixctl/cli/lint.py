"""`prefixctl lint` and `prefixctl rule`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import clean, load, print_json
from prefixctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from prefixctl.core.findings import Severity
    from prefixctl.lint.fix import FixedFile
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
    baseline: Annotated[
        Path | None, typer.Option(help="File with known findings, which do not fail.")
    ] = None,
    save_as: Annotated[
        Path | None,
        typer.Option("--write-baseline", help="Write all findings to this file, and exit 0."),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply the safe fixes, which change no word.")
    ] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option("--unsafe-fixes", help="Also move lines that print a value behind the text."),
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what the fixes would change; write nothing.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Read every file anew, and keep nothing.")
    ] = False,
    output: Annotated[
        LintFormat, typer.Option("--format", help="How to print the result.")
    ] = LintFormat.TEXT,
) -> None:
    """Find what ends the shared prefix of prompts, and what is lost behind it.

    Exits 1 for findings at or above --fail-on, 3 if a file cannot be read or nothing was found.
    """
    from prefixctl.api.lint import fix_paths, lint_paths, save_baseline
    from prefixctl.core.findings import Severity

    if baseline and save_as:
        raise UsageError("--baseline and --write-baseline exclude each other")
    config = load(context)
    wanted = fail_on.value if fail_on else config.lint.fail_on
    threshold = None if wanted == FailOn.NEVER.value else Severity[wanted.upper()]
    fixed: tuple[FixedFile, ...] = ()
    if fix or unsafe_fixes or diff:
        fixed = fix_paths(config, paths or (), target=target, unsafe=unsafe_fixes, write=not diff)
    if not (baseline or save_as) and config.lint.baseline is not None:
        baseline = config.root / config.lint.baseline
    report = lint_paths(config, paths or (), target=target, baseline=baseline, cache=not no_cache)
    if diff:
        typer.echo(clean("\n".join(one.diff for one in fixed)), nl=bool(fixed))
    else:
        _say_fixed(fixed)
        _print(report, output, threshold)
    if save_as is not None:
        count = save_baseline(config, report, save_as)
        typer.echo(clean(f"{save_as}: {count} findings written"), err=True)
        threshold = None
    _exit(report, threshold)


def rule(
    name: Annotated[
        str | None, typer.Argument(help="Id or name, for example PFX101; all if omitted.")
    ] = None,
) -> None:
    """Show the page of a lint rule, or list all rules."""
    from prefixctl.lint.pages import all_pages, find_page

    if name is not None:
        typer.echo(find_page(name).markdown, nl=False)
        return
    for page in all_pages():
        made = page.rule
        typer.echo(f"{made.id}  {made.severity.label:8} {made.name}")


def _exit(report: LintReport, threshold: Severity | None) -> None:
    if report.unreadable:
        raise typer.Exit(ExitCode.BAD_INPUT)
    if report.reaches(threshold):
        raise typer.Exit(ExitCode.FINDINGS)


def _say_fixed(fixed: tuple[FixedFile, ...]) -> None:
    for one in fixed:
        typer.echo(clean(f"{one.path}: fixed {', '.join(one.rules)}"), err=True)


def _print(report: LintReport, output: LintFormat, threshold: Severity | None) -> None:
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
    else:
        made = {
            LintFormat.JSON: to_json,
            LintFormat.SARIF: to_sarif,
            LintFormat.GITLAB: to_gitlab,
        }
        print_json(made[output](report))
