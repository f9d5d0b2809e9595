"""Every policy against a naive one that scans everything, on small random traces."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.cost_aware import CostAwarePolicy
from prefixctl.core.policy.lru_freq import LruFreqPolicy
from prefixctl.core.policy.make import POLICIES
from prefixctl.core.policy.reuse import ReusePolicy
from prefixctl.core.policy.rival import Rival
from prefixctl.traffic.pool import Pool
from prefixctl.traffic.replay import replay
from prefixctl.traffic.setup import PLAIN, Setup
from prefixctl.traffic.sweep import sweep_lru
from prefixctl.traffic.workload import Workload

DEPTH_COST = 0.25


def workload(paths: list[list[int]]) -> Workload:
    """Paths in a tree of digits as a workload of chained contents."""
    names: dict[tuple[int, ...], int] = {}
    chains = [
        [names.setdefault(tuple(path[:end]), len(names)) for end in range(1, len(path) + 1)]
        for path in paths
    ]
    return Workload(
        block_tokens=1,
        arrivals_seconds=list(range(len(chains))),
        input_tokens=[len(chain) for chain in chains],
        output_tokens=[0] * len(chains),
        chains=chains,
        contents=max(len(names), 1),
        owners=[0] * len(chains),
    )


paths = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=40)
capacities = st.integers(1, 14)


@dataclass
class Naive:
    """A cache of contents; the victim is found by looking at every leaf."""

    load: Workload
    capacity: int
    policy: str
    cached: set[int] = field(default_factory=set)
    parent: dict[int, int | None] = field(default_factory=dict)
    born: dict[int, int] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    count: dict[int, int] = field(default_factory=dict)
    value: dict[int, float] = field(default_factory=dict)
    next_use: dict[int, int] = field(default_factory=dict)
    level: float = 0.0
    tick: int = 0

    def run(self) -> int:
        return sum(self.serve(number, chain) for number, chain in enumerate(self.load.chains))

    def serve(self, number: int, chain: list[int]) -> int:
        hits = 0
        for content in chain:
            if content not in self.cached:
                break
            hits += 1
        held = set(chain[:hits])
        self.tick += 1
        for content in chain[:hits]:
            self.use(content, number, first=False)
        overflows = POLICIES[self.policy].overflows
        for position in range(hits, len(chain) if overflows else min(len(chain), self.capacity)):
            content = chain[position]
            above = chain[position - 1] if position else None
            if len(self.cached) >= self.capacity and not overflows:
                victim = self.victim(held)
                if victim is None or (
                    self.policy == "min" and self.declines(content, victim, number)
                ):
                    break
                self.cached.remove(victim)
                self.level = max(self.level, self.priority(victim))
            self.tick += 1
            self.cached.add(content)
            self.parent[content] = above
            self.born[content] = self.tick
            self.use(content, number, first=True)
            held.add(content)
        while len(self.cached) > self.capacity:
            self.cached.remove(self.victim(set()))
        self.tick += 1
        if self.policy == "lru":
            self.used.update(dict.fromkeys(chain, self.tick))
        return hits

    def declines(self, content: int, victim: int, number: int) -> bool:
        return self.after(content, number) >= self.next_use[victim]

    def after(self, content: int, number: int) -> int:
        chains = self.load.chains
        later = (n for n in range(number + 1, len(chains)) if content in chains[n])
        return next(later, len(chains))

    def use(self, content: int, number: int, *, first: bool) -> None:
        chain = self.load.chains
        self.count[content] = 1 if first else self.count[content] + 1
        self.used[content] = self.tick
        cost = 1.0
        if self.policy == "gdsf":
            depth = next(c.index(content) for c in chain if content in c)
            cost += DEPTH_COST * depth
        self.value[content] = self.level + self.count[content] * cost
        self.next_use[content] = self.after(content, number)

    def priority(self, content: int) -> float:
        return {
            "lru": self.used,
            "fifo": self.born,
            "lfu": self.count,
            "lfuda": self.value,
            "gdsf": self.value,
            "min": {c: -n for c, n in self.next_use.items()},
        }[self.policy][content]

    def victim(self, held: set[int]) -> int | None:
        parents = {self.parent[content] for content in self.cached}
        leaves = [c for c in self.cached if c not in parents and c not in held]
        return min(leaves, key=lambda c: (self.priority(c), self.used[c]), default=None)


def rate(load: Workload, policy: str, capacity: int) -> int:
    setup = Setup(policy=policy, capacity_blocks=capacity, rules=PLAIN, depth_cost=DEPTH_COST)
    return replay(load, setup).counts.hit_blocks


@pytest.mark.parametrize("policy", ["lru", "fifo", "lfu", "lfuda", "gdsf", "min"])
@settings(max_examples=60, deadline=None)
@given(paths=paths, capacity=capacities)
def test_ordered_policies(policy: str, paths: list[list[int]], capacity: int) -> None:
    load = workload(paths)
    assert rate(load, policy, capacity) == Naive(load, capacity, policy).run()


@dataclass
class NaiveLists:
    """ARC and S3-FIFO with plain lists, oldest first, that are scanned for a leaf."""

    capacity: int
    policy: str
    lists: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    ghosts: tuple[OrderedDict[int, None], OrderedDict[int, None]] = field(
        default_factory=lambda: (OrderedDict(), OrderedDict())
    )
    parent: dict[int, int | None] = field(default_factory=dict)
    count: dict[int, int] = field(default_factory=dict)
    target: int = 0

    def run(self, chains: list[list[int]]) -> int:
        return sum(self.serve(chain) for chain in chains)

    def serve(self, chain: list[int]) -> int:
        hits = 0
        for content in chain:
            if not self.holds(content):
                break
            hits += 1
        for content in chain[:hits]:
            self.touch(content)
        for position in range(hits, len(chain)):
            content = chain[position]
            self.adapt(content)
            if self.is_full() and self.policy == "s3fifo" and not self.evict(set(chain)):
                break
            known = [self.forget(ghosts, content) for ghosts in self.ghosts]
            self.lists[any(known)].append(content)
            self.parent[content] = chain[position - 1] if position else None
            self.count[content] = 0
        while self.is_full(beyond=1):
            self.evict(set())
        return hits

    def is_full(self, beyond: int = 0) -> bool:
        return len(self.lists[0]) + len(self.lists[1]) >= self.capacity + beyond

    def holds(self, content: int) -> bool:
        return content in self.lists[0] or content in self.lists[1]

    @staticmethod
    def forget(ghosts: OrderedDict[int, None], content: int) -> bool:
        known = content in ghosts
        ghosts.pop(content, None)
        return known

    def touch(self, content: int) -> None:
        self.count[content] = min(self.count[content] + 1, 3)
        if self.policy == "arc":
            for contents in self.lists:
                if content in contents:
                    contents.remove(content)
            self.lists[1].append(content)

    def adapt(self, content: int) -> None:
        once, again = self.ghosts
        if self.policy == "arc" and content in once:
            self.target = min(self.target + max(1, len(again) // len(once)), self.capacity)
        elif self.policy == "arc" and content in again:
            self.target = max(self.target - max(1, len(once) // len(again)), 0)

    def evict(self, held: set[int]) -> bool:
        while True:
            if self.policy == "arc":
                where = 0 if self.lists[0] and len(self.lists[0]) > self.target else 1
            else:
                where = 0 if len(self.lists[0]) >= max(int(self.capacity * 0.1), 1) else 1
            victim = self.leaf(where, held)
            if victim is None:
                where = 1 - where
                victim = self.leaf(where, held)
            if victim is None:
                return False
            if self.policy == "s3fifo" and self.count[victim] >= (1 if where else 2):
                self.count[victim] = self.count[victim] - 1 if where else 0
                self.lists[where].remove(victim)
                self.lists[1].append(victim)
                continue
            self.lists[where].remove(victim)
            self.remember(victim, where)
            return True

    def remember(self, victim: int, where: int) -> None:
        if self.policy == "s3fifo" and where == 1:
            return
        limit = self.capacity if self.policy == "arc" else max(int(self.capacity * 0.9), 1)
        self.ghosts[where][victim] = None
        self.ghosts[where].move_to_end(victim)
        if len(self.ghosts[where]) > limit:
            self.ghosts[where].popitem(last=False)

    def leaf(self, where: int, held: set[int]) -> int | None:
        parents = {self.parent[c] for contents in self.lists for c in contents}
        return next((c for c in self.lists[where] if c not in parents and c not in held), None)


@pytest.mark.parametrize("policy", ["arc", "s3fifo"])
@settings(max_examples=100, deadline=None)
@given(paths=paths, capacity=capacities)
def test_two_list_policies(policy: str, paths: list[list[int]], capacity: int) -> None:
    load = workload(paths)
    assert rate(load, policy, capacity) == NaiveLists(capacity, policy).run(load.chains)


@settings(max_examples=100, deadline=None)
@given(paths=paths, sizes=st.lists(capacities, min_size=1, max_size=4))
def test_the_sweep_is_the_replay(paths: list[list[int]], sizes: list[int]) -> None:
    load = workload(paths)
    for size, swept in zip(sizes, sweep_lru(load, sizes), strict=True):
        replayed = replay(load, Setup(policy="lru", capacity_blocks=size, rules=PLAIN)).counts
        assert swept.counts.hit_blocks == replayed.hit_blocks
        assert swept.counts.evicted_blocks == replayed.evicted_blocks


@settings(max_examples=60, deadline=None)
@given(paths=paths, capacity=capacities)
def test_nothing_beats_the_optimum(paths: list[list[int]], capacity: int) -> None:
    load = workload(paths)
    best = rate(load, "min", capacity)
    assert all(rate(load, policy, capacity) <= best for policy in POLICIES)


def watched(base: type[ReusePolicy]) -> type[ReusePolicy]:
    """The policy, every victim checked against a scan of all idle leaves."""

    class Watched(base):
        def evict(self, count: int) -> list[int]:
            victims: list[int] = []
            for _ in range(count):
                expected = self.scan()
                victims += super().evict(1)
                assert victims[-1:] == [] or victims[-1] in expected
            return victims

        def scan(self) -> set[int]:
            b = self.blocks
            leaves = [s for s in range(b.size) if b.idle[s] and not b.children[s]]
            oldest: dict[int, int] = {}
            for slot in leaves:
                label = b.label[slot]
                oldest[label] = min(oldest.get(label, 1 << 60), b.stamp[slot])
            heads = [s for s in leaves if b.stamp[s] == oldest[b.label[s]]]
            worth = {
                s: self._order(b.label[s], s) if self.equal_depth(s, heads) else None for s in heads
            }
            known = [w for w in worth.values() if w is not None]
            low = min(known, default=0.0)
            return {s for s in heads if worth[s] is None or worth[s] == low}

        def equal_depth(self, slot: int, heads: list[int]) -> bool:
            """Heads of one class and age differ in depth only: any of them may be first."""
            b = self.blocks
            twins = [h for h in heads if b.label[h] == b.label[slot]]
            return len({b.depth[h] for h in twins}) == 1

    return Watched


@pytest.mark.parametrize("base", [LruFreqPolicy, CostAwarePolicy])
@settings(max_examples=60, deadline=None)
@given(paths=paths, capacity=capacities)
def test_learning_policies(base: type[ReusePolicy], paths: list[list[int]], capacity: int) -> None:
    load = workload(paths)
    policy = watched(base)(Blocks(capacity))
    pool = Pool(capacity, policy, load.contents)
    for chain in load.chains:
        slots = pool.find(chain)
        pool.hold(slots)
        fresh = pool.allocate(min(len(chain) - len(slots), pool.available))
        if fresh:
            rest = chain[len(slots) : len(slots) + len(fresh)]
            pool.store(fresh, rest, slots[-1] if slots else None)
        pool.release((slots + fresh)[::-1])


@settings(max_examples=60, deadline=None)
@given(paths=paths, capacity=capacities)
def test_the_rival_is_lru(paths: list[list[int]], capacity: int) -> None:
    """Whole requests at a time, its bound is where LRU's stack ends."""
    rival = Rival(capacity)
    last: dict[int, int] = {}
    for now, chain in enumerate(workload(paths).chains, 1):
        for content, then in last.items():
            newer = sum(1 for t in last.values() if t > then)
            assert rival.holds(then) == (newer < capacity), content
        for content in chain:
            if content in last:
                rival.reuse(last[content], 1)
            last[content] = now
        rival.use(now, len(chain))
