"""``pins``, ``pin``, ``unpin``, ``resident``: what stays in a running server's cache."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from prefixctl.cli.output import Format, FormatOption, clean, load, out, print_json, say, talk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prefixctl.api.pins import Scope
    from prefixctl.engine.admin import EngineState, PinState

SCHEMA = 1
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Prompts, NAME or NAME@VERSION; all live ones if omitted."),
]
TargetOption = Annotated[str | None, typer.Option(help="Target.", show_default=False)]
ServerOption = Annotated[
    list[str] | None, typer.Option(help="Base address; repeat for more.", show_default=False)
]
TenantOption = Annotated[
    list[str] | None, typer.Option(help="Under this tenant's salt; repeat for more.")
]
GroupOption = Annotated[list[str] | None, typer.Option(help="Under this share group's salt.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("pins")(pins)
    app.command("pin")(pin)
    app.command("unpin")(unpin)
    app.command("resident")(resident)


def pins(
    context: typer.Context,
    target: TargetOption = None,
    server: ServerOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show what is pinned on running servers, and how their pools are divided.

    The servers must run with $PREFIXCTL_ADMIN_TOKEN, and so must this command.
    """
    from prefixctl.api.pins import engine_states

    states = engine_states(load(context), scope=_scope(target, server), environment=os.environ)
    if output is Format.JSON:
        print_json({"schema": SCHEMA, "engines": [asdict(s) for s in states]})
        return
    _print_engines(states)
    listed = [pin for state in states for pin in state.pins]
    if listed:
        out().print()
        _print_pins(listed)


def pin(
    context: typer.Context,
    names: Names = None,
    target: TargetOption = None,
    server: ServerOption = None,
    tenant: TenantOption = None,
    group: GroupOption = None,
    auto: Annotated[
        int | None,
        typer.Option(min=1, help="Pin at N hits within an hour, unpin when cold.", metavar="N"),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Pin prefixes on every server and rank: they are never evicted; what is missing is computed.

    Exit 1 if a pin is refused or a pinned prefix is not resident.
    """
    from prefixctl.api.pins import pin_prefixes

    states = pin_prefixes(
        load(context),
        names or (),
        scope=_scope(target, server, tenant, group),
        auto_hits=auto,
        environment=os.environ,
    )
    _finish(states, output)
    refused = any(not s.accepted or (auto is None and s.pinned < s.blocks) for s in states)
    raise typer.Exit(1 if refused else 0)


def unpin(
    context: typer.Context,
    names: Annotated[
        list[str], typer.Argument(help="NAME for all its versions and namespaces, or NAME@VERSION.")
    ],
    target: TargetOption = None,
    server: ServerOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Let pinned prefixes go; they stay cached until their room is needed."""
    from prefixctl.api.pins import unpin_prefixes

    found = unpin_prefixes(
        load(context), names, scope=_scope(target, server), environment=os.environ
    )
    if output is Format.JSON:
        print_json({"schema": SCHEMA, "unpinned": [asdict(f) for f in found]})
        return
    for each in found:
        blocks = ", ".join(f"{n:,}" for n in each.blocks)
        say(f"{each.name} on {each.server}: {blocks} blocks given back")


def resident(
    context: typer.Context,
    names: Names = None,
    target: TargetOption = None,
    server: ServerOption = None,
    tenant: TenantOption = None,
    group: GroupOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show how many blocks of each version are cached, without sending a request.

    Exit 1 if a prefix is not whole somewhere.
    """
    from prefixctl.api.pins import resident_prefixes

    states = resident_prefixes(
        load(context),
        names or (),
        scope=_scope(target, server, tenant, group),
        environment=os.environ,
    )
    _finish(states, output)
    raise typer.Exit(1 if any(s.resident < s.blocks for s in states) else 0)


def _scope(
    target: str | None,
    server: Sequence[str] | None,
    tenant: Sequence[str] | None = None,
    group: Sequence[str] | None = None,
) -> Scope:
    from prefixctl.api.pins import Scope

    return Scope(target=target, servers=server or (), tenants=tenant or (), groups=group or ())


def _finish(states: Sequence[PinState], output: Format) -> None:
    if output is Format.JSON:
        print_json({"schema": SCHEMA, "prefixes": [asdict(s) for s in states]})
        return
    _print_pins(states)
    for reason, names in _reasons(states).items():
        talk().print(clean(f"{', '.join(names)}: {reason}"))


def _reasons(states: Iterable[PinState]) -> dict[str, list[str]]:
    """Each reason once, with the prefixes that it is about."""
    found: dict[str, list[str]] = {}
    for state in states:
        if state.reason:
            names = found.setdefault(state.reason, [])
            names += [] if state.name in names else [state.name]
    return found


def _print_pins(states: Sequence[PinState]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("prefix", "server", "rank"):
        table.add_column(heading)
    for heading in ("blocks", "resident", "pinned", "hits"):
        table.add_column(heading, justify="right")
    table.add_column("pin")
    for s in states:
        figures = (f"{n:,}" for n in (s.blocks, s.resident, s.pinned, s.hits))
        table.add_row(clean(s.name), s.server, str(s.rank), *figures, _pin_words(s))
    out().print(table)


def _pin_words(state: PinState) -> str:
    if not state.accepted:
        return "refused"
    if state.auto_hits is not None:
        return f"auto at {state.auto_hits:,}/h, {'hot' if state.active else 'not hot'}"
    return "kept" if state.active else "-"


def _print_engines(states: Sequence[EngineState]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("server", "rank", "policy"):
        table.add_column(heading)
    for heading in ("blocks", "pinned", "cap", "in flight", "cached", "blank"):
        table.add_column(heading, justify="right")
    for s in states:
        b = s.blocks
        figures = (b["total"], b["pinned"], s.pin_cap, b["in_flight"], b["cached"], b["blank"])
        table.add_row(s.server, str(s.rank), clean(s.policy), *(f"{n:,}" for n in figures))
    out().print(table)
