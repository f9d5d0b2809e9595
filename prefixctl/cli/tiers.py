"""``tiers``: what lies below the device, and what an operator does to it; ``precompute``."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, load, out, print_json, say, talk
from prefixctl.errors import UsageError

if TYPE_CHECKING:
    from prefixctl.api.precompute import Precomputed
    from prefixctl.api.tier_page import ServerTiers
    from prefixctl.api.tiers import TierReport

SCHEMA = 1
SHOW_SCHEMA = 2
NAMES = {"host": "host memory", "nvme": "disk"}
app = typer.Typer(no_args_is_help=True, help="Host memory and disk behind the device's cache.")


def register(parent: typer.Typer) -> None:
    """Add the commands."""
    parent.add_typer(app, name="tiers")
    tenancy = typer.Typer(no_args_is_help=True, help="Tenants and share groups in the cache.")
    tenancy.callback()(lambda: None)  # so that one command alone keeps its name
    tenancy.command("purge")(purge)
    parent.add_typer(tenancy, name="tenancy")
    parent.command("precompute")(precompute)


@app.command("show")
def show(
    context: typer.Context,
    server: Annotated[
        list[str] | None,
        typer.Option(help="Ask this server for its counters; repeat for more."),
    ] = None,
    victims: Annotated[int, typer.Option(min=0, help="How many next victims to name.")] = 5,
    output: FormatOption = Format.TEXT,
) -> None:
    """Occupancy, hit shares, causes of misses, latency, and what would be evicted next."""
    from prefixctl.api.tiers import show_tiers

    report = show_tiers(load(context), servers=server or (), victims=victims)
    if output is Format.JSON:
        print_json({"schema": SHOW_SCHEMA, **asdict(report)})
    else:
        print_report(report)


@app.command("purge", hidden=True)
def purge(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The tenant, or the group with --group.")],
    group: Annotated[bool, typer.Option("--group", help="The name is a share group's.")] = False,
    server: Annotated[
        list[str] | None,
        typer.Option(help="A running server; repeat for more. Those of the targets if omitted."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Remove a tenant from device, host memory and disk, and its key; prove that nothing is left.

    Exit 1 if a block is left, 4 if a server did not answer: what it holds is not known.
    """
    from prefixctl.api.tiers import purge as api_purge

    done = api_purge(load(context), name, group=group, environment=os.environ, servers=server or ())
    if output is Format.JSON:
        print_json({"schema": SCHEMA, **asdict(done)})
    else:
        key = ", its key is destroyed" if done.key_destroyed else ""
        for url, blocks in done.device.items():
            say(f"{url}: {blocks:,} blocks of the device, {done.host[url]:,} of host memory")
        for url, why in done.unreached.items():
            talk().print(f"{url}: not known what it holds: {why}", style="red")
        unknown = f", {len(done.unreached)} not known" if done.unreached else ""
        say(f"{name}: {done.blocks:,} files removed, {done.left:,} blocks left{unknown}{key}")
        if not done.found_any:
            talk().print(f"nothing of {name} was found: is that its name?", style="yellow")
    raise typer.Exit(done.exit_code)


@app.command("retire")
def retire(
    context: typer.Context,
    version: Annotated[str, typer.Argument(help="The version, as support-agent@3.")],
    undo: Annotated[
        bool, typer.Option("--undo", help="The version is in use again, after a rollback.")
    ] = False,
) -> None:
    """Let the blocks of a version go first when the disk is full."""
    from prefixctl.api.tiers import retire as api_retire

    path = api_retire(load(context), version, undo=undo)
    how = "are kept like all others" if undo else "go first when space is short"
    say(f"{version}: its blocks in {path} {how}")


@app.command("key")
def key(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A tenant or group; '*' for everybody else.")],
    group: Annotated[bool, typer.Option("--group", help="The name is a share group's.")] = False,
) -> None:
    """Make an encryption key for a tenant's or group's blocks on the disk."""
    from prefixctl.api.tiers import make_key

    what = "group" if group else "tenant"
    say(f"a key for {what} {name} is in {make_key(load(context), name, group=group)}")


@app.command("rekey")
def rekey(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Prompts; all live ones if omitted.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target.", show_default=False)] = None,
    tenant: Annotated[list[str] | None, typer.Option(help="Carry this tenant over.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="Carry this share group over.")] = None,
    to_epoch: Annotated[
        int | None, typer.Option(min=0, help="The next epoch; one more if omitted.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Before salts rotate: store the blocks of live prefixes under the next epoch's names.

    No engine is needed. Exit 1 if a prefix is not whole under the new names.
    """
    from prefixctl.api.rekey import rekey as api_rekey

    report = api_rekey(
        load(context),
        names or (),
        target=target,
        tenants=tenant or (),
        groups=group or (),
        to_epoch=to_epoch,
        environment=os.environ,
    )
    if output is Format.JSON:
        print_json({"schema": SCHEMA, **asdict(report)})
    else:
        for p in report.prefixes:
            say(f"{p.prompt}@{p.version} of {p.namespace}: {p.carried:,} of {p.blocks:,} blocks")
        talk().print(f"epoch {report.from_epoch} to {report.to_epoch}")
        if report.exit_code:
            talk().print("the rest is not on the disk, cannot be read, or there is no room for it")
        else:
            talk().print(
                f"next: tenancy.epoch: {report.to_epoch}, restart the servers, prefixctl warm"
            )
    raise typer.Exit(report.exit_code)


def precompute(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Prompts, NAME or NAME@VERSION; all live ones if omitted."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Target to compute for.", show_default=False)
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Compute under this tenant's salt; repeat for more.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Compute under this share group's salt.")
    ] = None,
    work_tree: Annotated[
        bool, typer.Option("--work-tree", help="The prompts as they are in the work tree.")
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option(help="A file that says what to compute and for whom.", show_default=False),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Fill the disk tier with the live prefixes, without serving traffic.

    Run it again to resume: what is stored is not computed again. Exit 1 if a prefix is not whole.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from prefixctl.api.precompute import precompute_prefixes
    from prefixctl.sources.plan import load_plan
    from prefixctl.sources.secret import load_secret

    if plan is not None and (names or tenant or group or work_tree):
        raise UsageError(
            "--plan says what to compute and for whom",
            hint="give --plan alone, or names with --group, --tenant and --work-tree",
        )
    config = load(context)
    if plan is None and not (tenant or group) and load_secret(config, os.environ) is not None:
        talk().print("note: no --tenant or --group, so only requests without a salt find it")
    # A polite kill ends the engine like Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    columns = (TextColumn("precompute"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.description}"), console=talk(), transient=True
    ) as bar:
        task = bar.add_task("", total=None)
        report = precompute_prefixes(
            config,
            names or (),
            target=target,
            tenants=tenant or (),
            groups=group or (),
            work_tree=work_tree,
            plan=None if plan is None else load_plan(plan),
            environment=os.environ,
            on_progress=lambda what, done, total: bar.update(
                task, description=what, completed=done, total=total
            ),
        )
    if output is Format.JSON:
        print_json({"schema": SCHEMA, **asdict(report)})
    else:
        print_precomputed(report.prefixes)
        talk().print(f"manifest: {report.manifest}")
    raise typer.Exit(report.exit_code)


def print_precomputed(prefixes: tuple[Precomputed, ...]) -> None:
    """A table with one line for each prompt and namespace."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("prompt", "namespace"):
        table.add_column(heading)
    for heading in ("tokens", "blocks"):
        table.add_column(heading, justify="right")
    table.add_column("status")
    for p in prefixes:
        table.add_row(
            f"{p.prompt}@{p.version}", p.namespace, f"{p.tokens:,}", f"{p.blocks:,}", p.status
        )
    out().print(table)
    for p in prefixes:
        if p.message:
            talk().print(f"{p.prompt}@{p.version} for {p.namespace}: {p.message}", markup=False)


def print_report(report: TierReport) -> None:
    """Tables: models in the folder, servers, next victims."""
    from rich.table import Table

    view = report.view
    say(f"{view.path}: {_size(view.bytes)} of {_size(report.max_bytes)} in use")
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "since", "blocks", "size", "last use", "versions"):
        table.add_column(heading, justify="right" if heading in {"blocks", "size"} else "left")
    for model in view.models:
        named = ", ".join(f"{k} {v:,}" for k, v in list(model.versions.items())[:3]) or "-"
        blocks = f"{model.blocks:,}" + (f" ({model.broken:,} broken)" if model.broken else "")
        table.add_row(
            model.folder, _when(model.created), blocks, _size(model.bytes),
            _when(model.used_last) if model.blocks else "-", named,
        )  # fmt: skip
    out().print(table)
    for server in report.servers:
        print_server(server)
    if view.victims:
        say("next to go:")
        for victim in view.victims:
            version = f" of {victim.version}" if victim.version else ""
            say(f"  {victim.key[:16]} at depth {victim.depth}{version}, used {_when(victim.used)}")


def print_server(server: ServerTiers) -> None:
    """What one server's tiers gave, a line for each of their sides."""
    prompt = max(server.prompt_tokens, 1)
    shares = ", ".join(f"{k} {v / prompt:.1%}" for k, v in server.cached_tokens.items()) or "none"
    say(f"{server.url}: prompt tokens served by {shares}")
    for name, tier in server.tiers.items():
        pinned = f", {tier.pinned:,} pinned" if tier.pinned else ""
        say(
            f"  {NAMES.get(name, name)}: {tier.blocks:,} blocks{pinned}, {_size(tier.bytes)} of "
            f"{_size(tier.max_bytes)}; {tier.hits:,} hits"
        )
        if tier.stored:
            say(f"    stored: {tier.stored:,}")
        for what, counts in (
            ("misses", tier.misses),
            ("not stored", tier.refused),
            ("evicted", tier.evictions),
        ):
            if counts:
                said = ", ".join(f"{label} {count:,}" for label, count in counts.items())
                say(f"    {what}: {said}")
        for what, took in (("load", tier.load), ("store", tier.store)):
            if took is not None:
                say(f"    {what}: median {took.median_ms:.2f} ms, p99 {took.p99_ms:.2f} ms a block")


def _size(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "at no time"  # a file may say anything
