"""The other ways to lint: by rendering, again and again, and for an editor."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from prefixctl.cli.lint_report import LintFormat, exit_of, print_report
from prefixctl.cli.output import clean, print_json
from prefixctl.errors import ExitCode, InputError, UsageError

if TYPE_CHECKING:
    from prefixctl.config import Config
    from prefixctl.core.findings import Severity
    from prefixctl.lint.report import LintReport

SHOWN_FILES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks of lint, whichever way it goes.

    Attributes:
        paths: Files and folders.
        target: The target, if one was named.
        threshold: The severity that fails; None for none.
        baseline: File with known findings.
        cache: Whether to use the cache.
        output: How to print.
    """

    paths: tuple[Path, ...]
    target: str | None
    threshold: Severity | None
    baseline: Path | None
    cache: bool
    output: LintFormat


def known_of(config: Config, baseline: Path | None) -> Path | None:
    """The given baseline, or that of the configuration."""
    if baseline is None and config.lint.baseline is not None:
        return config.root / config.lint.baseline
    return baseline


def print_samples(config: Config, asked: Asked, values: Path | None) -> None:
    """Compare renders with what lint says.

    Raises:
        typer.Exit: With the exit code, if it is not 0.
        UsageError: If another format is asked for.
    """
    from prefixctl.api.lint_sample import sample_paths
    from prefixctl.lint.sample_text import reaches, to_json, to_text

    _refuse_format(asked, "--sample")
    report = sample_paths(config, asked.paths, target=asked.target, values=values)
    if asked.output is LintFormat.JSON:
        print_json(to_json(report))
    else:
        typer.echo(clean(to_text(report)))
    if report.unreadable or report.none_rendered:
        raise typer.Exit(ExitCode.BAD_INPUT)
    if reaches(report, asked.threshold):
        raise typer.Exit(ExitCode.FINDINGS)


def print_stdin(config: Config, asked: Asked, name: Path | None) -> None:
    """Lint what comes on standard input.

    Raises:
        typer.Exit: With the exit code, if it is not 0.
        UsageError: If the file's name is missing, or paths are given as well.
        InputError: If standard input is closed, or cannot be read.
    """
    from prefixctl.api.lint import lint_text
    from prefixctl.lint.run import MAX_FILE_BYTES

    if name is None:
        raise UsageError("--stdin needs --stdin-filename", hint="its name says how it is read")
    if asked.paths:
        raise UsageError("--stdin goes without paths", hint="--stdin-filename names the file")
    if sys.stdin is None:
        raise InputError("standard input is closed", hint="pipe the content of the file into it")
    try:
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as exc:
        raise InputError(f"cannot read standard input: {exc}") from exc
    report = lint_text(config, data, name, target=asked.target, baseline=asked.baseline)
    print_report(report, asked.output, asked.threshold)
    exit_of(report, asked.threshold)


def print_changes(load: Callable[[], Config], asked: Asked) -> None:
    """Lint, and lint again whenever a file changes, until somebody interrupts.

    What is wrong with a file, or with the configuration, is said and waited out.

    Raises:
        UsageError: If another format is asked for. JSON is one document a line.
    """
    from prefixctl.api.lint import lint_paths, watch_paths

    _refuse_format(asked, "--watch")
    watch = watch_paths(load, asked.paths)
    while True:
        try:
            config = load()
            report = lint_paths(
                config, asked.paths, target=asked.target, baseline=asked.baseline, cache=asked.cache
            )
            if asked.output is LintFormat.JSON:
                _print_line(report)
            else:
                print_report(report, asked.output, asked.threshold)
        except InputError as exc:
            typer.echo(clean(f"error: {exc}"), err=True)
        typer.echo("watching; Ctrl-C ends it", err=True)
        _say_changed(watch.wait())


def _print_line(report: LintReport) -> None:
    from prefixctl.lint.report import to_json

    typer.echo(json.dumps(to_json(report), ensure_ascii=False))


def _say_changed(paths: tuple[Path, ...]) -> None:
    shown = ", ".join(str(p) for p in paths[:SHOWN_FILES])
    more = f" and {len(paths) - SHOWN_FILES} more" if len(paths) > SHOWN_FILES else ""
    now = datetime.now().strftime("%H:%M:%S")
    typer.echo(clean(f"\n{now} changed: {shown}{more}"), err=True)


def _refuse_format(asked: Asked, option: str) -> None:
    if asked.output not in {LintFormat.TEXT, LintFormat.JSON}:
        raise UsageError(f"{option} prints text or json, not {asked.output.value}")
