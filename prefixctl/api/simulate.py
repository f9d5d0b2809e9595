"""What a policy, a pin, a tier or more memory would have made of a trace."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from prefixctl.core.policy.make import POLICIES, depth_cost
from prefixctl.errors import UsageError
from prefixctl.sources.traces import MalformedLine, Trace, load_trace
from prefixctl.traffic.choices import Isolation, Routing, Rules, Tenants
from prefixctl.traffic.grid import PinWish, Row, run_grid
from prefixctl.traffic.setup import ENGINE, PLAIN, Service, Setup
from prefixctl.traffic.sweep import sweep_lru
from prefixctl.traffic.workload import Workload, by_first_own_block, salted, workload_of
from prefixctl.yamlfile import did_you_mean

CAPACITY = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,9})?)\s*(?P<unit>%|t|b|[MGT]iB)?", re.ASCII)
BYTES = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MOST_REPLICAS = 10_000
USUAL = ("lru", "lru_freq", "cost_aware", "min")
"""What is compared if nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to simulate beside capacities and policies.

    Attributes:
        rules: What is replayed.
        block_tokens: The trace's block size, None to find it.
        token_bytes: KV bytes of one token, so that capacities can be given and told in bytes.
        skip_malformed: Leave out malformed lines, and count them.
        host: Capacity of the host tier, see `parse_capacity`; None for no tier.
        disk: The same for the disk tier.
        replicas: Servers; each has the capacities given.
        routing: Which one a request goes to.
        pin_top: How many of the hottest prefixes are pinned.
        pin_from: The share of the requests that the hottest ones are learned from.
        pin_share: The part of the pool that may be pinned at most.
        ttl_seconds: How long idle blocks live.
        tenants: Where tenants come from.
        isolation: What they share.
        shares: Idle blocks are shared out evenly between tenants.
        service: How long requests run; one at a time if None.
    """

    rules: Rules = Rules.ENGINE
    block_tokens: int | None = None
    token_bytes: int | None = None
    skip_malformed: bool = False
    host: str | None = None
    disk: str | None = None
    replicas: int = 1
    routing: Routing = Routing.ROUND_ROBIN
    pin_top: int = 0
    pin_from: float = 0.1
    pin_share: float = 0.2
    ttl_seconds: float | None = None
    tenants: Tenants = Tenants.TRACE
    isolation: Isolation = Isolation.NONE
    shares: bool = False
    service: Service | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The result.

    Attributes:
        path: The trace.
        requests: Requests in it.
        block_tokens: Its block size.
        distinct_blocks: Distinct full blocks of the trace: what a capacity in % is a share of.
        isolated_blocks: The same after isolation, which makes equal blocks of tenants differ.
        public_blocks: Leading blocks that selective isolation leaves to all tenants; else 0.
        longest_blocks: Blocks that the longest request writes: what a pool must have to run it.
        ceiling: The token hit rate of one cache without bounds, isolation included.
        options: What was asked for.
        malformed: Lines that were left out.
        rows: One for each capacity and policy, in this order.
    """

    path: str
    requests: int
    block_tokens: int
    distinct_blocks: int
    isolated_blocks: int
    public_blocks: int
    longest_blocks: int
    ceiling: float
    options: Options = field(repr=False)
    malformed: tuple[MalformedLine, ...] = field(default=(), repr=False)
    rows: tuple[Row, ...]


def simulate(
    path: Path,
    *,
    capacities: Sequence[str],
    policies: Sequence[str] = (),
    options: Options | None = None,
    on_progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Simulation:
    """Replay a trace at each capacity with each policy.

    Args:
        path: The trace; see `load_trace`.
        capacities: Of the device pool of one replica; see `parse_capacity`.
        policies: Names of `POLICIES`, ``all`` for all; the usual ones if empty. Those that are
            not named themselves leave out what does not go with the options.
        options: Everything else; vLLM's pool on one server if None.
        on_progress: Told what is running, and the requests done and to do.

    Raises:
        UsageError: If a policy or capacity is unknown, or options do not fit together.
        InputError, NothingToDoError: If the trace cannot be used.
    """
    options = options or Options()
    _check(options)
    names = _policies(policies, options)
    for text in capacities:
        _split(text, options.token_bytes)
    trace = load_trace(
        path, block_tokens=options.block_tokens, skip_malformed=options.skip_malformed
    )
    workload = _workload(trace, options)
    sizes = list(dict.fromkeys(_blocks(text, trace, options) for text in capacities))
    rows = run_grid(
        workload,
        _setup(trace, options),
        sizes,
        names,
        pins=PinWish(
            prefixes=options.pin_top, learned_from=options.pin_from, share=options.pin_share
        ),
        on_progress=on_progress,
    )
    ceiling = sweep_lru(workload, [workload.contents])[0].token_hit_rate
    return Simulation(
        path=str(path),
        requests=len(workload),
        block_tokens=workload.block_tokens,
        distinct_blocks=trace.contents,
        isolated_blocks=workload.contents,
        public_blocks=workload.public_blocks if options.isolation is Isolation.SELECTIVE else 0,
        longest_blocks=workload.largest_within(sys.maxsize),
        ceiling=ceiling,
        options=options,
        malformed=trace.malformed,
        rows=tuple(rows),
    )


def parse_capacity(
    text: str, *, distinct_blocks: int, block_tokens: int, token_bytes: int | None = None
) -> int:
    """A capacity in blocks.

    Args:
        text: ``5%`` of the distinct blocks of the trace, ``8192`` or ``8192b`` blocks,
            ``1000000t`` tokens, or ``24GiB`` (MiB, TiB) of KV.
        distinct_blocks: What a share is of.
        block_tokens: The block size.
        token_bytes: KV bytes of one token, if known.

    Raises:
        UsageError: If it is none of these, or less than one block.
    """
    number, unit = _split(text, token_bytes)
    if unit == "%":
        blocks = int(distinct_blocks * number / 100)
    elif unit == "t":
        blocks = int(number) // block_tokens
    elif unit in BYTES and token_bytes:
        blocks = int(number * BYTES[unit]) // (token_bytes * block_tokens)
    else:
        blocks = int(number)
    if blocks < 1:
        few = f"; the trace has {distinct_blocks:,} distinct ones" if unit == "%" else ""
        raise UsageError(
            f"'{text}' is less than one block of {block_tokens:,} tokens{few}",
            hint="give a number of blocks, such as 32" if unit == "%" else None,
        )
    return blocks


def _split(text: str, token_bytes: int | None) -> tuple[float, str]:
    """Number and unit; wrong words are told before a trace is read."""
    match = CAPACITY.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"'{text}' is no capacity",
            hint="give 5% of the distinct blocks, 8192 blocks, 1000000t tokens or 24GiB",
        )
    unit = match["unit"] or "b"
    if unit in BYTES and not token_bytes:
        raise UsageError(
            f"how many blocks '{text}' is depends on the model",
            hint="give the KV bytes of one token with --token-bytes",
        )
    return float(match["number"]), unit


def _blocks(text: str, trace: Trace, options: Options) -> int:
    return parse_capacity(
        text,
        distinct_blocks=trace.contents,
        block_tokens=trace.block_tokens,
        token_bytes=options.token_bytes,
    )


def _policies(names: Sequence[str], options: Options) -> list[str]:
    """The policies to replay, without those that do not go with the options."""
    for name in names:
        if name not in POLICIES and name != "all":
            raise UsageError(f"no policy '{name}'", hint=did_you_mean(name, [*POLICIES, "all"]))
    decorated = options.replicas > 1 or options.host or options.disk or options.shares
    optimal = not (decorated or options.pin_top or options.ttl_seconds is not None)
    if "min" in names and not optimal:
        raise UsageError(
            "the offline optimum is that of one plain pool",
            hint="leave 'min' out with replicas, tiers, pins, --ttl or --shares",
        )
    wanted = POLICIES if "all" in names else names or USUAL
    return [name for name in dict.fromkeys(wanted) if name != "min" or optimal]


def _check(options: Options) -> None:
    numbers = {
        "--pin-from": options.pin_from,
        "--pin-share": options.pin_share,
        "--ttl": options.ttl_seconds or 0.0,
    }
    if options.service is not None:
        numbers["--prefill-rate"] = options.service.prefill_tokens_per_second
        numbers["--decode-rate"] = options.service.decode_tokens_per_second
    for name, value in numbers.items():
        if not isfinite(value):
            raise UsageError(f"{name} {value} is no number to reckon with")
    if options.replicas > MOST_REPLICAS:
        raise UsageError(f"--replicas {options.replicas:,} is more than {MOST_REPLICAS:,}")
    for text in (options.host, options.disk):
        if text is not None:
            _split(text, options.token_bytes)


def _workload(trace: Trace, options: Options) -> Workload:
    workload = workload_of(trace)
    if options.tenants is Tenants.SESSION:
        workload = by_first_own_block(workload)
    named = any(workload.owners)
    if not named and (options.isolation is not Isolation.NONE or options.shares):
        raise UsageError(
            "the trace names no tenants",
            hint="--tenants session takes sessions: what follows one first own block",
        )
    if options.isolation is Isolation.FULL:
        return salted(workload)
    if options.isolation is Isolation.SELECTIVE:
        depth = workload.public_blocks or by_first_own_block(workload).public_blocks
        return salted(workload, public_blocks=depth)
    return workload


def _setup(trace: Trace, options: Options) -> Setup:
    """What all runs have in common."""
    return Setup(
        policy="lru",
        capacity_blocks=1,
        rules=ENGINE if options.rules is Rules.ENGINE else PLAIN,
        host_blocks=0 if options.host is None else _blocks(options.host, trace, options),
        disk_blocks=0 if options.disk is None else _blocks(options.disk, trace, options),
        replicas=options.replicas,
        routing=options.routing,
        ttl_seconds=options.ttl_seconds,
        tenant_shares=options.shares,
        depth_cost=depth_cost(trace.block_tokens),
        service=options.service,
    )
