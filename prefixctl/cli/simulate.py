"""``simulate``: what a policy, a pin or more memory would buy, before anything is changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefixctl.cli.output import Format, FormatOption, print_json, talk
from prefixctl.traffic.choices import Isolation, Routing, Rules, Tenants

if TYPE_CHECKING:
    from prefixctl.api.simulate import Options, Simulation
    from prefixctl.traffic.grid import Row

SCHEMA = 1
SHOWN_LINES = 5
Capacity = "5% of the distinct blocks, 8192 blocks, 1000000t tokens or 24GiB"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    trace: Annotated[Path, typer.Argument(help="JSON lines with hash_ids, as Mooncake's.")],
    capacity: Annotated[
        str, typer.Option(help=f"Device pool of one replica, several with commas: {Capacity}.")
    ] = "1%,5%,10%,25%",
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policies with commas, or 'all'; lru,lru_freq,cost_aware,min if left out.",
            show_default=False,
        ),
    ] = None,
    rules: Annotated[
        Rules, typer.Option(help="vLLM's pool, or a plain cache of full prompt blocks.")
    ] = Rules.ENGINE,
    host: Annotated[
        str | None, typer.Option(help="Host tier, as a capacity.", show_default=False)
    ] = None,
    disk: Annotated[
        str | None, typer.Option(help="Disk tier, as a capacity.", show_default=False)
    ] = None,
    pin_top: Annotated[int, typer.Option(min=0, help="Pin the N hottest prefixes.")] = 0,
    pin_from: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the trace they are learned from.")
    ] = 0.1,
    pin_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the pool that may be pinned.")
    ] = 0.2,
    ttl: Annotated[
        float | None,
        typer.Option(min=0.0, help="Seconds that an idle block lives.", show_default=False),
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="Servers, each with these tiers.")] = 1,
    routing: Annotated[
        Routing, typer.Option(help="Which replica a request goes to.")
    ] = Routing.ROUND_ROBIN,
    tenants: Annotated[
        Tenants, typer.Option(help="Tenants: the trace's field, or one for each session.")
    ] = Tenants.TRACE,
    isolation: Annotated[
        Isolation, typer.Option(help="What tenants share: all, nothing, or the common prefix.")
    ] = Isolation.NONE,
    shares: Annotated[
        bool, typer.Option("--shares", help="Share idle blocks out evenly between tenants.")
    ] = False,
    prefill_rate: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Prefill tokens a second of one replica: lets requests overlap in time.",
            show_default=False,
        ),
    ] = None,
    decode_rate: Annotated[
        float, typer.Option(min=0.1, help="Decode tokens a second, with --prefill-rate.")
    ] = 30.0,
    block_size: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a block; found if left out.", show_default=False),
    ] = None,
    token_bytes: Annotated[
        int | None,
        typer.Option(
            min=1, help="KV bytes of one token, for capacities in GiB.", show_default=False
        ),
    ] = None,
    skip_malformed: Annotated[
        bool, typer.Option("--skip-malformed", help="Leave out malformed lines, and count them.")
    ] = False,
    chart: Annotated[
        Path | None,
        typer.Option(help="Write hit rate against capacity as an .svg.", show_default=False),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Replay a trace through caches of several sizes and policies.

    `lru` is what vLLM does, `min` the optimum that knows the future. Exit 3 if the trace is
    empty or malformed.
    """
    from prefixctl.api.simulate import Options
    from prefixctl.traffic.setup import Service

    service = None
    if prefill_rate is not None:
        service = Service(
            prefill_tokens_per_second=prefill_rate, decode_tokens_per_second=decode_rate
        )
    options = Options(
        rules=rules,
        block_tokens=block_size,
        token_bytes=token_bytes,
        skip_malformed=skip_malformed,
        host=host,
        disk=disk,
        replicas=replicas,
        routing=routing,
        pin_top=pin_top,
        pin_from=pin_from,
        pin_share=pin_share,
        ttl_seconds=ttl,
        tenants=tenants,
        isolation=isolation,
        shares=shares,
        service=service,
    )
    if chart is not None:
        check_chart(chart, trace)
    from prefixctl.cli.simulate_view import print_simulation, tell_malformed

    result = run(trace, capacity, policy, options)
    if output is Format.JSON:
        print_json(to_json(result))
    else:
        print_simulation(result)
    tell_malformed(result)
    if chart is not None:
        write_chart(result, chart)


def run(trace: Path, capacity: str, policy: str | None, options: Options) -> Simulation:
    """Simulate with a progress bar on stderr."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from prefixctl.api.simulate import simulate as api_simulate

    policies = () if policy is None else _words(policy)
    columns = (TextColumn("simulate"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = talk()
    with Progress(
        *columns,
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("reading the trace", total=None)
        return api_simulate(
            trace,
            capacities=_words(capacity),
            policies=policies,
            options=options,
            on_progress=lambda label, done, total: bar.update(
                task, description=label, completed=done, total=total
            ),
        )


def _words(text: str) -> list[str]:
    from prefixctl.errors import UsageError

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError("an empty list", hint="separate capacities and policies with commas")
    return words


def check_chart(path: Path, trace: Path) -> None:
    """Refuse a chart that could not be written, before the work is done."""
    from prefixctl.errors import UsageError

    if path.suffix.lower() != ".svg":
        raise UsageError("the chart is an SVG", path=str(path), hint="give a name ending in .svg")
    if not path.parent.is_dir():
        raise UsageError("cannot write the chart: its folder is not there", path=str(path))
    if path.exists() and trace.exists() and path.samefile(trace):
        raise UsageError("the chart would overwrite the trace", path=str(path))


def write_chart(result: Simulation, path: Path) -> None:
    """Hit rate against capacity, one line for each policy."""
    from prefixctl.errors import UsageError
    from prefixctl.sources.files import replace_file
    from prefixctl.traffic.chart import draw_frontier

    curves: dict[str, list[tuple[int, float]]] = {}
    for row in result.rows:
        curves.setdefault(row.policy, []).append((row.capacity_blocks, row.outcome.token_hit_rate))
    title = f"Token hit rate, {Path(result.path).name}"
    try:
        replace_file(path, draw_frontier(title, curves).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot write the chart: {reason}", path=str(path)) from error


def to_json(result: Simulation) -> dict[str, Any]:
    """The result as plain values."""
    from dataclasses import asdict

    options = asdict(result.options)
    return {
        "schema": SCHEMA,
        "trace": result.path,
        "requests": result.requests,
        "block_tokens": result.block_tokens,
        "distinct_blocks": result.distinct_blocks,
        "isolated_blocks": result.isolated_blocks,
        "public_blocks": result.public_blocks,
        "longest_request_blocks": result.longest_blocks,
        "ceiling_token_hit_rate": round(result.ceiling, 6),
        "options": options,
        "malformed": len(result.malformed),
        "malformed_lines": [asdict(line) for line in result.malformed[:SHOWN_LINES]],
        "rows": [_row_json(row, result) for row in result.rows],
    }


def _row_json(row: Row, result: Simulation) -> dict[str, Any]:
    from dataclasses import asdict

    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 6)

    outcome = row.outcome
    token_bytes = result.options.token_bytes
    size = None if token_bytes is None else row.capacity_blocks * result.block_tokens * token_bytes
    return {
        "policy": row.policy,
        "capacity_blocks": row.capacity_blocks,
        "capacity_bytes": size,
        "block_hit_rate": rounded(outcome.block_hit_rate),
        "token_hit_rate": rounded(outcome.token_hit_rate),
        "device_hit_tokens": outcome.hit_tokens,
        "over_lru": rounded(row.over_lru),
        "gap_closed": rounded(row.gap_closed),
        "unpinned_block_hit_rate": rounded(row.unpinned.block_hit_rate if row.unpinned else None),
        "unpinned_token_hit_rate": rounded(row.unpinned.token_hit_rate if row.unpinned else None),
        "pins": None if row.pins is None else asdict(row.pins) | {"net": row.pins.net},
        "counts": asdict(outcome.counts),
        "replica_requests": list(outcome.replica_requests),
        "replica_hits": list(outcome.replica_hits),
    }
