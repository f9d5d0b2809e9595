"""Q3: hit rates of all policies on the shared traces, beside a published reference table.

Usage: python bench/policies.py [FOLDER]. FOLDER holds the traces, default ../shared/traces; made
ones (see shapes.py) run in any case, alone if it is not there. Block hit rates of full prompt
blocks, cold start, only leaves are evicted; capacities in % of the distinct blocks. Prints its
figures last; exits 1 below a bar.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from shapes import SHAPES, workload

from prefixctl.core.policy.make import POLICIES, depth_cost
from prefixctl.sources.traces import load_trace
from prefixctl.traffic.replay import replay
from prefixctl.traffic.setup import PLAIN, Setup
from prefixctl.traffic.sweep import sweep_lru
from prefixctl.traffic.workload import Workload, workload_of

TOLERANCE = 0.002
BELOW_LRU = 0.005
CONVERSATION = "mooncake_conversation_trace"
OURS = ("lru_freq", "cost_aware")
HELD_TO = ("lru", "fifo", "lfu", "arc", "min")
TINY = (1, 3, 8, 20, 50)
DENSE = (1, 2, 3, 5, 10, 16, 20, 25, 35, 50, 75)
SCARCE = {1: 0.077, 5: 0.216, 10: 0.296}
"""ARC of the reference at 1, 5 and 10 % of the conversation trace."""


@dataclass(frozen=True)
class Case:
    """One trace: capacities in %, and the reference table of its README."""

    percents: tuple[int, ...]
    reference: dict[str, tuple[float, ...]] = field(default_factory=dict)


CASES = {
    CONVERSATION: Case(
        percents=(1, 5, 10, 25, 50),
        reference={
            "lru": (0.054, 0.202, 0.288, 0.368, 0.379),
            "fifo": (0.054, 0.197, 0.283, 0.366, 0.379),
            "lfu": (0.060, 0.129, 0.195, 0.345, 0.378),
            "lfuda": (0.057, 0.214, 0.298, 0.368, 0.378),
            "gdsf": (0.057, 0.204, 0.294, 0.360, 0.377),
            "arc": (0.077, 0.216, 0.296, 0.348, 0.378),
            "s3fifo": (0.078, 0.195, 0.255, 0.365, 0.378),
            "min": (0.250, 0.382, 0.382, 0.382, 0.382),
        },
    ),
    "tau_airline_blk16": Case(
        percents=(1, 5, 10, 25),
        reference={
            "lru": (0.564, 0.896, 0.924, 0.926),
            "fifo": (0.564, 0.896, 0.924, 0.926),
            "lfu": (0.406, 0.439, 0.468, 0.554),
            "lfuda": (0.562, 0.858, 0.913, 0.926),
            "gdsf": (0.564, 0.850, 0.909, 0.926),
            "arc": (0.569, 0.891, 0.924, 0.926),
            "s3fifo": (0.547, 0.783, 0.842, 0.880),
            "min": (0.683, 0.918, 0.926, 0.926),
        },
    ),
}
Table = dict[str, dict[str, list[float]]]
_workloads: dict[str, Workload] = {}


def load(folder: Path) -> None:
    for name in CASES:
        path = folder / f"{name}.jsonl"
        if path.is_file():
            _workloads[name] = workload_of(load_trace(path))


def rate_of(load: Workload, policy: str, capacity: int) -> float:
    cost = depth_cost(load.block_tokens)
    setup = Setup(policy=policy, capacity_blocks=capacity, rules=PLAIN, depth_cost=cost)
    return replay(load, setup).block_hit_rate


def hit_rate(job: tuple[str, int, str]) -> float:
    name, percent, policy = job
    load = _workloads[name]
    return rate_of(load, policy, load.contents * percent // 100)


def measure(pool: ProcessPoolExecutor) -> Table:
    """Hit rates by shared trace and policy, in the order of the capacities."""
    jobs = [
        (name, p, policy) for name, c in CASES.items() for policy in POLICIES for p in c.percents
    ]
    rates = iter(list(pool.map(hit_rate, jobs)))
    return {
        name: {policy: [next(rates) for _ in case.percents] for policy in POLICIES}
        for name, case in CASES.items()
    }


@dataclass(frozen=True)
class Frontier:
    """One policy on one trace at all capacities, against LRU."""

    name: str
    policy: str
    worst: float
    worst_at: int
    best: float
    best_at: int


def frontier(job: tuple[str, str]) -> Frontier:
    """From one block up to most of them."""
    name, policy = job
    load = _workloads.get(name) or workload(name)
    shares = {max(int(load.contents * percent / 100), 1) for percent in DENSE}
    sizes = sorted(shares.union(TINY))
    over = {
        size: rate_of(load, policy, size) - lru.block_hit_rate
        for size, lru in zip(sizes, sweep_lru(load, sizes), strict=True)
    }
    worst, best = min(over, key=over.__getitem__), max(over, key=over.__getitem__)
    return Frontier(name, policy, over[worst], worst, over[best], best)


def print_frontiers(frontiers: list[Frontier]) -> None:
    sizes = len(TINY) + len(DENSE)
    print(f"\nagainst LRU at up to {sizes} capacities, from 1 block to 75 %; at so many blocks")
    print(f"{'':30}{'policy':12}{'worst':>9}{'at':>9}{'best':>9}{'at':>9}")
    for f in frontiers:
        places = f"{f.worst:+9.4f}{f.worst_at:9,}{f.best:+9.4f}{f.best_at:9,}"
        print(f"{f.name:30}{f.policy:12}{places}")


def print_table(name: str, case: Case, rates: dict[str, list[float]]) -> None:
    print(f"\n{name}: block hit rate, and in brackets its distance from the reference")
    print(f"{'':12}" + "".join(f"{f'{p} %':>16}" for p in case.percents))
    for policy, row in rates.items():
        cells = []
        for index, rate in enumerate(row):
            known = case.reference.get(policy)
            away = "" if known is None else f"({rate - known[index]:+.4f})"
            cells.append(f"{rate:.4f}{away:>10}")
        print(f"{policy:12}" + "".join(cells))
    for policy in OURS:
        cells = [f"{_gap(rates, policy, i):>16}" for i in range(len(case.percents))]
        print(f"gap closed by {policy}\n{'':12}" + "".join(cells))


def _gap(rates: dict[str, list[float]], policy: str, index: int) -> str:
    lru, best = rates["lru"][index], rates["min"][index]
    return f"{(rates[policy][index] - lru) / (best - lru):.1%}" if best - lru > 0.001 else "-"


def misses(measured: Table) -> list[str]:
    """Every bar that is not reached, in words."""
    found = []
    for name, rates in measured.items():
        case = CASES[name]
        for index, percent in enumerate(case.percents):
            for policy in HELD_TO:
                rate, wanted = rates[policy][index], case.reference[policy][index]
                if abs(rate - wanted) > TOLERANCE:
                    found.append(f"{name} {percent} %: {policy} {rate:.4f}, reference {wanted}")
            for policy in OURS:
                rate, lru = rates[policy][index], rates["lru"][index]
                if rate < lru - BELOW_LRU:
                    found.append(f"{name} {percent} %: {policy} {rate:.4f} below LRU {lru:.4f}")
                if name == CONVERSATION and rate < SCARCE.get(percent, 0.0):
                    found.append(f"{name} {percent} %: {policy} {rate:.4f} below ARC")
    return found


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/traces")
    shared = all((folder / f"{name}.jsonl").is_file() for name in CASES)
    if not shared:
        print(f"no shared traces in {folder}: made ones alone")
    context = get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context, initializer=load, initargs=(folder,)) as pool:
        measured = measure(pool) if shared else {}
        for name, rates in measured.items():
            print_table(name, CASES[name], rates)
        names = [*(CASES if shared else ()), *SHAPES]
        frontiers = list(pool.map(frontier, [(name, p) for name in names for p in OURS]))
    print_frontiers(frontiers)
    missed = misses(measured) + [
        f"{f.name}: {f.policy} {-f.worst:.4f} below LRU at {f.worst_at:,} blocks"
        for f in frontiers
        if f.worst < -BELOW_LRU
    ]
    print("\nbelow the bar:" if missed else "\nall bars reached")
    for line in missed:
        print(f"  {line}")
    rounded = {
        n: {p: [round(r, 4) for r in row] for p, row in t.items()} for n, t in measured.items()
    }
    worst = {f"{f.name} {f.policy}": round(f.worst, 4) for f in frontiers}
    print(json.dumps({"hit_rates": rounded, "worst_against_lru": worst, "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
