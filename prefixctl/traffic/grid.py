"""Several policies at several capacities, compared with LRU, the optimum and life without pins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prefixctl.core.governing import pin_cap
from prefixctl.traffic.replay import replay
from prefixctl.traffic.setup import PLAIN, Outcome, Setup
from prefixctl.traffic.sweep import sweep_lru
from prefixctl.traffic.workload import Workload, hottest

Progress = Callable[[str, int, int], None]
SMALLEST_GAP = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class PinPrice:
    """What pins bring and cost, in hit blocks over the trace.

    Attributes:
        prefixes: Prefixes that are pinned.
        left_out: Prefixes that did not fit under the cap.
        blocks: Blocks that they take, in each replica.
        hits: Hits on them.
        gained: Of these, hits that the policy would not have had without pins.
        lost: Hits that the memory of the pins would have earned with other blocks.
    """

    prefixes: int
    left_out: int
    blocks: int
    hits: int
    gained: int
    lost: int

    @property
    def net(self) -> int:
        """Hits won, or lost if negative."""
        return self.gained - self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy at one capacity.

    Attributes:
        policy: Its name.
        capacity_blocks: Of one replica.
        outcome: What happened.
        over_lru: The block hit rate less that of LRU, None if LRU was not asked for.
        gap_closed: The share of the way from LRU to the offline optimum, None if there is none
            or one of the two was not asked for.
        pins: What pins bring and cost, None without pins.
        unpinned: What happened in the same cache without pins; None if none were asked for.
    """

    policy: str
    capacity_blocks: int
    outcome: Outcome
    over_lru: float | None = None
    gap_closed: float | None = None
    pins: PinPrice | None = None
    unpinned: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinWish:
    """What is to be pinned.

    Attributes:
        prefixes: How many of the hottest prefixes; 0 for none.
        learned_from: The share of the requests that they are learned from.
        share: The part of the pool that may be pinned at most.
    """

    prefixes: int = 0
    learned_from: float = 0.1
    share: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _PinPlan:
    cap: int
    contents: frozenset[int]
    prefixes: int
    left_out: int


def run_grid(
    workload: Workload,
    base: Setup,
    capacities: Sequence[int],
    policies: Sequence[str],
    *,
    pins: PinWish | None = None,
    on_progress: Progress = lambda *_: None,
) -> list[Row]:
    """Replay a workload at each capacity with each policy.

    LRU under the plain rules takes one pass for all capacities together.

    Args:
        workload: The requests.
        base: Everything but policy, capacity and pins.
        capacities: Blocks of one replica.
        policies: Names of `core.policy.make.POLICIES`.
        pins: What is to be pinned.
        on_progress: Told what is running, and the requests done and to do.
    """
    wish = pins or PinWish()
    swept = _sweep(workload, base, capacities, policies, wish)
    runs = sum(name != "lru" or not swept for name in policies) * len(capacities)
    whole = runs * len(workload) * (2 if wish.prefixes else 1)
    done = 0
    rows: list[Row] = []
    for capacity in capacities:
        plan = _plan(workload, wish, base, capacity)
        group: list[Row] = []
        for name in policies:
            if name == "lru" and swept:
                group.append(Row(policy=name, capacity_blocks=capacity, outcome=swept[capacity]))
                continue
            setup = replace(base, policy=name, capacity_blocks=capacity, pins=plan.contents)
            tell = _teller(on_progress, f"{name} at {capacity:,} blocks", done, whole)
            outcome = replay(workload, replace(setup, pin_blocks=plan.cap), on_progress=tell)
            done += len(workload)
            price = unpinned = None
            if wish.prefixes:
                tell = _teller(on_progress, f"{name} without pins", done, whole)
                unpinned = replay(workload, setup, on_progress=tell)
                done += len(workload)
                price = _price(plan, outcome, unpinned)
            group.append(
                Row(
                    policy=name,
                    capacity_blocks=capacity,
                    outcome=outcome,
                    pins=price,
                    unpinned=unpinned,
                )
            )
        rows += _compared(group)
    return rows


def _sweep(
    workload: Workload,
    base: Setup,
    capacities: Sequence[int],
    policies: Sequence[str],
    wish: PinWish,
) -> dict[int, Outcome]:
    """LRU at all capacities, if nothing but plain LRU is asked for."""
    plain = Setup(policy=base.policy, capacity_blocks=base.capacity_blocks, rules=PLAIN)
    plain = replace(plain, depth_cost=base.depth_cost)
    if "lru" not in policies or wish.prefixes or base != plain:
        return {}
    return dict(zip(capacities, sweep_lru(workload, capacities), strict=True))


def _plan(workload: Workload, wish: PinWish, base: Setup, capacity: int) -> _PinPlan:
    """The hottest prefixes that fit under the cap, whole ones only."""
    if not wish.prefixes:
        return _PinPlan(cap=0, contents=frozenset(), prefixes=0, left_out=0)
    longest = workload.largest_within(capacity) if base.rules.whole else 0
    cap = pin_cap(capacity, share=wish.share, longest_request=longest, watermark=0)
    contents: set[int] = set()
    taken = 0
    wanted = hottest(workload, wish.prefixes, learned_from=wish.learned_from)
    for chain in wanted:
        if len(contents.union(chain)) <= cap:
            contents.update(chain)
            taken += 1
    left_out = len(wanted) - taken
    return _PinPlan(cap=cap, contents=frozenset(contents), prefixes=taken, left_out=left_out)


def _price(plan: _PinPlan, pinned: Outcome, unpinned: Outcome) -> PinPrice:
    with_pins, without = pinned.counts, unpinned.counts
    elsewhere = with_pins.hit_blocks - with_pins.pin_hit_blocks
    return PinPrice(
        prefixes=plan.prefixes,
        left_out=plan.left_out,
        blocks=len(plan.contents),
        hits=with_pins.pin_hit_blocks,
        gained=with_pins.pin_hit_blocks - without.pin_hit_blocks,
        lost=without.hit_blocks - without.pin_hit_blocks - elsewhere,
    )


def _compared(group: Sequence[Row]) -> list[Row]:
    """Rows of one capacity, set against LRU and the optimum among them."""
    rates = {row.policy: row.outcome.block_hit_rate for row in group}
    lru, best = rates.get("lru"), rates.get("min")
    if lru is None:
        return list(group)
    gap = None if best is None or best - lru < SMALLEST_GAP else best - lru
    return [
        replace(
            row,
            over_lru=rates[row.policy] - lru,
            gap_closed=None if gap is None else (rates[row.policy] - lru) / gap,
        )
        for row in group
    ]


def _teller(tell: Progress, label: str, offset: int, whole: int) -> Callable[[int, int], None]:
    return lambda done, _: tell(label, offset + done, whole)
