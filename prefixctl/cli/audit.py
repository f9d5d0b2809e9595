"""``audit``: is the cache isolated between tenants?"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefixctl.cli.output import Format, FormatOption, load, print_json, say

if TYPE_CHECKING:
    from prefixctl.audit.probe import ProbeReport

SCHEMA = 1
STYLES = {"isolated": "green", "leak": "bold red", "inconclusive": "yellow"}


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="Audit the isolation between tenants.", no_args_is_help=True)
    group.command("probe")(probe)
    app.add_typer(group, name="audit")


def probe(
    context: typer.Context,
    server: Annotated[
        list[str] | None, typer.Option(help="Base address; repeat for more.", show_default=False)
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Name of a tenant; give two.", show_default=False)
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target to probe.", show_default=False)] = None,
    salts: Annotated[
        bool | None,
        typer.Option(
            "--salts/--no-salts",
            help="Send each tenant's salt; if omitted, where there is a tenancy secret.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Texts for each direction and rank.")] = 3,
    words: Annotated[int, typer.Option(min=50, help="Length of a text.")] = 400,
    output: FormatOption = Format.TEXT,
) -> None:
    """Test on a live server that two tenants do not see each other through the cache.

    Both must hold: the same namespace hits, the other one does not. Exit 1 on a leak, 6 if the
    test cannot tell.
    """
    from prefixctl.api.audit import audit_probe
    from prefixctl.errors import UsageError

    names = tuple(tenant or ("probe-a", "probe-b"))
    if len(names) != 2:  # noqa: PLR2004 - a pair
        raise UsageError("a probe needs two tenants", hint="--tenant A --tenant B")
    reports = audit_probe(
        load(context),
        server or (),
        tenants=(names[0], names[1]),
        target=target,
        salted=salts,
        rounds=rounds,
        words=words,
        environment=os.environ,
    )
    if output is Format.JSON:
        print_json({"schema": SCHEMA, "servers": [_as_json(r) for r in reports]})
    else:
        for report in reports:
            say(f"{report.server}: {report.explain()}", style=STYLES[report.isolation])
    raise typer.Exit(max(r.exit_code for r in reports))


def _as_json(report: ProbeReport) -> dict[str, Any]:
    return {
        "server": report.server,
        "isolation": report.isolation,
        "salted": report.salted,
        "explanation": report.explain(),
        "rounds": [asdict(r) | {"isolation": r.isolation} for r in report.rounds],
    }
