"""``serve``: start vLLM from the configuration."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, load, print_json, talk

SCHEMA = 1


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Argument(help="Model name, folder, or the name of a target.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Target whose settings to serve with.", show_default=False)
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port.")] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the command instead of running it.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Start the vLLM server with the arguments that prefixctl.yaml asks for.

    The process becomes the server, so signals and exit status are vLLM's own.
    """
    from prefixctl.api.serve import build_serve_command, check_gateway, check_tiers
    from prefixctl.engine.launch import check_startable

    config = load(context)
    command = build_serve_command(config, model, target=target, port=port)
    if print_ and output is Format.JSON:
        print_json(
            {
                "schema": SCHEMA,
                "arguments": command.arguments,
                "environment": dict(command.environment),
            }
        )
    elif print_:
        settings = [f"{k}={shlex.quote(v)}" for k, v in sorted(command.environment.items())]
        typer.echo(" ".join([*settings, shlex.join(command.arguments)]))
    else:
        check_gateway(config, {**os.environ, **command.environment})
        for warning in check_tiers(config):
            talk().print(warning, style="yellow")
        check_startable(command)
        talk().print(f"serving on {command.url}")
        os.execvpe(  # noqa: S606 - the server takes over this process
            command.arguments[0], command.arguments, {**os.environ, **command.environment}
        )
