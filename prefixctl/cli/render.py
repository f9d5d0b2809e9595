"""``render``: the request that a client sends for a version, or a file of it as it is."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from prefixctl.cli.output import load, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("render")(render)


def render(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@VERSION]", help="A number, live or previous; the work tree if omitted."
        ),
    ],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Value of a parameter; repeat for more."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Where deployment values come from.", show_default=False)
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(help="Print this file of the version instead, byte for byte."),
    ] = None,
) -> None:
    """Print the messages and tools of a version as JSON, ready for /v1/chat/completions."""
    from prefixctl.api.versions import prompt_text, render_request
    from prefixctl.errors import UsageError
    from prefixctl.yamlfile import did_you_mean

    config = load(context)
    prompt_name, _, ref = name.partition("@")
    if file is not None:
        files = prompt_text(config, prompt_name, ref or None).files
        if file not in files:
            raise UsageError(f"no file '{file}' in {name}", hint=did_you_mean(file, list(files)))
        sys.stdout.buffer.write(files[file])
        return
    values = {}
    for word in setting or ():
        key, found, value = word.partition("=")
        if not found:
            raise UsageError(f"'{word}' is no setting", hint="write --set NAME=VALUE")
        values[key] = value
    request = render_request(config, prompt_name, ref or None, values=values, target=target)
    body = {"messages": list(request.messages)}
    print_json(body if request.tools is None else {**body, "tools": list(request.tools)})
