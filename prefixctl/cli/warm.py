"""``warm``: no user pays for a cold prefix."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, load, out, print_json, say, talk

if TYPE_CHECKING:
    from prefixctl.warm.run import WarmOutcome, WarmReport

SCHEMA = 1
STYLES = {"resident": "green", "too short": "dim"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("warm")(warm)


def warm(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Prompts; all live ones if omitted.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target to warm.", show_default=False)] = None,
    server: Annotated[
        list[str] | None, typer.Option(help="Base address; repeat for more.", show_default=False)
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Warm under this tenant's salt; repeat for more.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Warm under this share group's salt.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Requests in flight at most on each server.")
    ] = 2,
    from_tier: Annotated[
        bool,
        typer.Option("--from-tier", help="Only what the disk tier holds."),
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Compute the live prefixes on every server and rank, and verify them by cached tokens.

    Run it again to resume: what is resident costs one cached request. Exit 1 if a prefix is not
    fully resident, 4 if a server does not answer, 5 if a server runs another model.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from prefixctl.api.warm import warm_prefixes
    from prefixctl.sources.secret import load_secret

    bar = Progress(
        TextColumn("warm"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=talk(),
        transient=True,
    )
    config = load(context)
    if not (tenant or group) and load_secret(config, os.environ) is not None:
        talk().print("note: no --tenant or --group, so only requests without a salt are warmed")
    with bar:
        task = bar.add_task("", total=None)

        def tell(outcome: WarmOutcome, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=outcome.prompt)

        report = warm_prefixes(
            config,
            names or (),
            target=target,
            servers=server or (),
            tenants=tenant or (),
            groups=group or (),
            concurrency=concurrency,
            from_tier=from_tier,
            on_left_out=lambda what: talk().print(f"not in the disk tier, left out: {what}"),
            environment=os.environ,
            on_outcome=tell,
        )
    if output is Format.JSON:
        outcomes = [asdict(o) | {"status": o.status.value} for o in report.outcomes]
        print_json({"schema": SCHEMA, "seconds": report.seconds, "outcomes": outcomes})
    else:
        print_report(report)
    raise typer.Exit(report.exit_code)


def print_report(report: WarmReport) -> None:
    """A table with one line for each prompt, server, rank and namespace."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("prompt", "server", "rank", "namespace"):
        table.add_column(heading)
    for heading in ("expected", "cached"):
        table.add_column(heading, justify="right")
    table.add_column("status")
    for o in report.outcomes:
        status = Text(o.status, style=STYLES.get(o.status, "bold red"))
        table.add_row(
            f"{o.prompt}@{o.version}",
            o.server,
            str(o.rank),
            o.namespace,
            f"{o.expected_hit_tokens:,}",
            "-" if o.cached_tokens is None else f"{o.cached_tokens:,}",
            status.append(" (was already)" if o.was_resident else "", style="none"),
        )
    out().print(table)
    for message, places in _messages(report).items():
        say(f"{', '.join(places)}: {message}")
    resident = sum(o.status in STYLES for o in report.outcomes)
    talk().print(f"{resident} of {len(report.outcomes)} in order, {report.seconds:.1f} s")


def _messages(report: WarmReport) -> dict[str, list[str]]:
    """Each message once, with the prompts that it is about."""
    places: dict[str, list[str]] = {}
    for o in report.outcomes:
        if o.message:
            named = places.setdefault(o.message, [])
            named += [f"{o.prompt}@{o.version}"] if f"{o.prompt}@{o.version}" not in named else []
    return places
