"""How a simulation is shown: a table on stdout, what it means on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prefixctl.cli.output import clean, out, talk
from prefixctl.traffic.grid import Row

if TYPE_CHECKING:
    from prefixctl.api.simulate import Simulation

SHOWN_LINES = 5
SHOWN_REPLICAS = 4
Column = tuple[str, "Callable[[Row], str]"]


def print_simulation(result: Simulation) -> None:
    """A table with one line for each capacity and policy, and remarks."""
    from rich.table import Table

    columns = list(_columns(result))
    table = Table(box=None, pad_edge=False)
    for heading, _ in columns:
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for row in _with_unpinned(result.rows):
        table.add_row(*(cell(row) for _, cell in columns))
    out().print(table)
    for remark in _remarks(result):
        talk().print(clean(remark))


def _with_unpinned(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, each followed by the one of the same cache without pins."""
    for row in rows:
        yield row
        if row.unpinned is not None:
            name, outcome = f"{row.policy} unpinned", row.unpinned
            yield Row(policy=name, capacity_blocks=row.capacity_blocks, outcome=outcome)


def tell_malformed(result: Simulation) -> None:
    """Lines that were left out, on stderr."""
    lines = result.malformed
    if lines:
        shown = "; ".join(f"line {line.line}: {line.reason}" for line in lines[:SHOWN_LINES])
        more = "; ..." if len(lines) > SHOWN_LINES else ""
        text = f"{len(lines):,} malformed lines left out of {result.path}: {shown}{more}"
        talk().print(clean(text))


def _columns(result: Simulation) -> Iterator[Column]:
    """Headings and cells; columns that would only show zeros are left out."""
    options = result.options
    yield "capacity", lambda row: f"{row.capacity_blocks:,}"
    if options.token_bytes is not None:
        block_bytes = options.token_bytes * result.block_tokens
        yield "GiB", lambda row: f"{row.capacity_blocks * block_bytes / (1 << 30):,.2f}"
    yield "policy", lambda row: row.policy
    yield "block hits", lambda row: f"{row.outcome.block_hit_rate:.3f}"
    yield "token hits", lambda row: f"{row.outcome.token_hit_rate:.3f}"
    if options.host or options.disk:
        yield "device", lambda row: _part(row, row.outcome.hit_tokens)
        yield "host", lambda row: _part(row, row.outcome.counts.host_tokens)
        yield "disk", lambda row: _part(row, row.outcome.counts.disk_tokens)
    yield "over LRU", lambda row: "-" if row.over_lru is None else _signed(row.over_lru)
    if any(row.gap_closed is not None for row in result.rows):
        yield "gap closed", lambda row: "-" if row.gap_closed is None else _percent(row.gap_closed)
    yield "evicted", lambda row: f"{row.outcome.counts.evicted_blocks:,}"
    if options.ttl_seconds is not None:
        yield "expired", lambda row: f"{row.outcome.counts.expired_blocks:,}"
    if options.service is not None:
        yield "waited", lambda row: f"{row.outcome.counts.waited:,}"
        yield "peak in use", lambda row: f"{row.outcome.counts.peak_in_use_blocks:,}"
    if any(row.outcome.counts.rejected for row in result.rows):
        yield "rejected", lambda row: f"{row.outcome.counts.rejected:,}"
    if options.replicas > 1:
        yield "requests by replica", _spread
    if options.pin_top:
        yield from _pin_columns()


def _pin_columns() -> Iterator[Column]:
    yield "pinned", lambda row: f"{row.pins.blocks:,}" if row.pins else "-"
    yield "pin gains", lambda row: f"{row.pins.gained:+,}" if row.pins else "-"
    yield "pin costs", lambda row: f"{-row.pins.lost:+,}" if row.pins else "-"
    yield "net blocks", lambda row: f"{row.pins.net:+,}" if row.pins else "-"


def _remarks(result: Simulation) -> Iterator[str]:
    """What the table does not say by itself."""
    yield (
        f"{result.requests:,} requests, {result.distinct_blocks:,} distinct blocks of "
        f"{result.block_tokens:,} tokens; a cache without bounds hits {result.ceiling:.3f} of "
        "the prompt tokens"
    )
    if result.isolated_blocks != result.distinct_blocks:
        yield f"isolation makes {result.isolated_blocks:,} distinct blocks of them"
    if result.public_blocks:
        yield f"the first {result.public_blocks:,} blocks of every request stay shared"
    elif result.options.isolation == "selective":
        yield "requests have no first block in common: selective isolation shares nothing"
    if any(row.outcome.counts.rejected for row in result.rows):
        yield (
            "rejected: longer than the pool, never run, counted as missed; the longest request "
            f"takes {result.longest_blocks:,} blocks"
        )
    yield from _pin_remarks(result)


def _pin_remarks(result: Simulation) -> Iterator[str]:
    if not result.options.pin_top:
        return
    for row in {row.capacity_blocks: row for row in result.rows if row.pins}.values():
        if row.pins is not None and row.pins.left_out:
            yield (
                f"at {row.capacity_blocks:,} blocks {row.pins.left_out:,} of "
                f"{row.pins.left_out + row.pins.prefixes:,} prefixes are not pinned: the share "
                "of the pool, or room for the longest request, leaves no more"
            )
    if all(row.pins is None or not row.pins.prefixes + row.pins.left_out for row in result.rows):
        yield "nothing to pin: no prefix was asked for twice in the part that pins are learned from"
    yield (
        "pins, in hit blocks: what they gain that the policy would have missed, and what their "
        "memory would have earned with other blocks"
    )


def _part(row: Row, tokens: int) -> str:
    return f"{tokens / max(row.outcome.counts.prompt_tokens, 1):.3f}"


def _spread(row: Row) -> str:
    each = row.outcome.replica_requests
    if len(each) > SHOWN_REPLICAS:
        return f"{min(each):,} to {max(each):,}"
    return " ".join(f"{number:,}" for number in each)


def _signed(value: float) -> str:
    text = f"{value:+.3f}"
    return text.replace("-", "+") if not float(text) else text


def _percent(value: float) -> str:
    text = f"{value:.0%}"
    return "0%" if text == "-0%" else text
