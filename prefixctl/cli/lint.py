"""`prefixctl lint` and `prefixctl rule`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.lint_modes import Asked, known_of, print_changes, print_samples, print_stdin
from prefixctl.cli.lint_report import FailOn, LintFormat, exit_of, print_report, threshold_of
from prefixctl.cli.output import Format, FormatOption, clean, load, print_json
from prefixctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from prefixctl.config import Config
    from prefixctl.lint.fix import FixedFile
    from prefixctl.lint.report import LintReport

SHOWN = 5


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
    sample: Annotated[
        bool,
        typer.Option(
            "--sample",
            help="Render the templates with several sets of values in a sandbox, and say what "
            "lint missed and what it claimed wrongly.",
        ),
    ] = False,
    values: Annotated[
        Path | None,
        typer.Option(
            help="With --sample: YAML or JSON file with a list of sets of values; made from the "
            "names of the variables if omitted."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Lint again whenever a file changes; Ctrl-C ends it.")
    ] = False,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Lint what comes on standard input, for editors.")
    ] = False,
    stdin_filename: Annotated[
        Path | None,
        typer.Option(help="With --stdin: the file it is; its name says how it is read."),
    ] = None,
    output: Annotated[
        LintFormat, typer.Option("--format", help="How to print the result.")
    ] = LintFormat.TEXT,
) -> None:
    """Find what ends the shared prefix of prompts, and what is lost behind it.

    Exits 1 for findings at or above --fail-on, 3 if a file cannot be read or nothing was found.
    """
    fixes = fix or unsafe_fixes or diff
    _refuse_together(
        {"--sample": sample, "--watch": watch, "--stdin": stdin},
        {"fixes": fixes, "--write-baseline": save_as is not None},
    )
    _refuse_together({"--baseline": baseline is not None, "--write-baseline": save_as is not None})
    _refuse_alone({"--values": values is not None}, "--sample", given=sample)
    _refuse_alone({"--stdin-filename": stdin_filename is not None}, "--stdin", given=stdin)
    config = load(context)
    asked = Asked(
        paths=tuple(paths or ()),
        target=target,
        threshold=threshold_of(fail_on.value if fail_on else config.lint.fail_on),
        baseline=None if save_as else known_of(config, baseline),
        cache=not no_cache,
        output=output,
    )
    if sample:
        print_samples(config, asked, values)
    elif watch:
        print_changes(lambda: load(context), asked)
    elif stdin:
        print_stdin(config, asked, stdin_filename)
    elif fixes:
        _fix(config, asked, save_as, unsafe=unsafe_fixes, diff=diff)
    else:
        _lint(config, asked, save_as)


def rule(
    name: Annotated[
        str | None, typer.Argument(help="Id or name, for example PFX101; all if omitted.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show the page of a lint rule, or list all rules."""
    from prefixctl.lint.pages import all_pages, find_page, page_value

    pages = all_pages() if name is None else (find_page(name),)
    if output is Format.JSON:
        print_json({"schema": 1, "rules": [page_value(p) for p in pages]})
    elif name is not None:
        typer.echo(pages[0].markdown, nl=False)
    else:
        for page in pages:
            made = page.rule
            typer.echo(f"{made.id}  {made.severity.label:8} {made.name}")


def _fix(config: Config, asked: Asked, save_as: Path | None, *, unsafe: bool, diff: bool) -> None:
    from prefixctl.api.lint import fix_paths, lint_paths

    fixed = fix_paths(
        config,
        asked.paths,
        target=asked.target,
        unsafe=unsafe,
        write=not diff,
        on_written=lambda one: typer.echo(
            clean(f"{one.path}: fixed {', '.join(one.rules)}"), err=True
        ),
    )
    if not diff:
        _lint(config, asked, save_as)
        return
    if asked.output is LintFormat.JSON:
        made = [{"path": f.path, "rules": list(f.rules), "diff": f.diff} for f in fixed]
        print_json({"schema": 1, "fixes": made})
    else:
        typer.echo(clean("\n".join(one.diff for one in fixed)), nl=bool(fixed))
    report = lint_paths(
        config, asked.paths, target=asked.target, baseline=asked.baseline, cache=asked.cache
    )
    _say_unfixed(report, fixed, unsafe=unsafe)
    exit_of(report, asked.threshold)


def _say_unfixed(report: LintReport, fixed: Sequence[FixedFile], *, unsafe: bool) -> None:
    """The findings that no fix changes, on stderr."""
    done = {(f.path, rule) for f in fixed for rule in f.rules}
    left = [f for f in report.findings if (f.location.path, f.rule) not in done]
    if not left:
        return
    shown = ", ".join(f"{f.rule} at {f.location.path}:{f.location.line}" for f in left[:SHOWN])
    more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
    moved = "" if unsafe else "; --unsafe-fixes moves lines as well"
    typer.echo(clean(f"no fix for {shown}{more}{moved}"), err=True)


def _lint(config: Config, asked: Asked, save_as: Path | None) -> None:
    from prefixctl.api.lint import lint_paths, proposed_fixes, save_baseline

    report = lint_paths(
        config, asked.paths, target=asked.target, baseline=asked.baseline, cache=asked.cache
    )
    fixes = None
    if asked.output is LintFormat.SARIF:
        fixes = proposed_fixes(config, report, asked.paths, target=asked.target)
    print_report(report, asked.output, asked.threshold, fixes=fixes)
    if save_as is None:
        exit_of(report, asked.threshold)
        return
    count = save_baseline(config, report, save_as)
    typer.echo(clean(f"{save_as}: {count} findings written"), err=True)
    exit_of(report, None)


def _refuse_together(*groups: Mapping[str, bool]) -> None:
    """Refuse options that exclude each other.

    Raises:
        UsageError: If more than one was given.
    """
    given = [name for group in groups for name, is_given in group.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other")


def _refuse_alone(options: Mapping[str, bool], other: str, *, given: bool) -> None:
    """Refuse options that need another one.

    Raises:
        UsageError: If they were given without it.
    """
    for name, is_given in options.items():
        if is_given and not given:
            raise UsageError(f"{name} goes with {other}")
