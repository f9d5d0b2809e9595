"""One contract for all eviction policies and their decorations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.expiry import Expiry
from prefixctl.core.policy.make import POLICIES
from prefixctl.core.policy.pins import Pinned
from prefixctl.core.policy.port import EvictionPolicy
from prefixctl.core.policy.shares import Shared

SIZE = 12
NEVER = 1_000
Make = Callable[[], EvictionPolicy]


def plain(name: str) -> Make:
    return lambda: POLICIES[name].make(Blocks(SIZE), 0.1)


def shared(name: str) -> Make:
    return lambda: Shared(Blocks(SIZE), lambda blocks: POLICIES[name].make(blocks, 0.1))


def pinned(name: str) -> Make:
    return lambda: Pinned(POLICIES[name].make(Blocks(SIZE), 0.1), size=SIZE, cap=4)


def expiring(name: str) -> Make:
    return lambda: Expiry(
        POLICIES[name].make(Blocks(SIZE), 0.1), size=SIZE, ttl_seconds=9.0, clock=lambda: 0.0
    )


ALL = {
    **{name: plain(name) for name in POLICIES},
    **{f"shared {name}": shared(name) for name in ("lru", "lru_freq", "cost_aware", "arc")},
    **{f"pinned {name}": pinned(name) for name in POLICIES},
    **{f"expiring {name}": expiring(name) for name in ("lru", "cost_aware")},
}


@dataclass
class Model:
    """A pool that trusts nobody: it knows for every block what may and what may not go."""

    policy: EvictionPolicy
    blank: list[int] = field(default_factory=lambda: list(range(SIZE)))
    content: dict[int, int] = field(default_factory=dict)
    slot: dict[int, int] = field(default_factory=dict)
    parent: dict[int, int | None] = field(default_factory=dict)
    references: dict[int, int] = field(default_factory=dict)
    pins: set[int] = field(default_factory=set)
    running: list[list[int]] = field(default_factory=list)

    def idle(self) -> set[int]:
        return {s for s in self.content if not self.references[s]}

    def evictable(self) -> set[int]:
        return self.idle() - self.pins

    def evict(self, count: int) -> list[int]:
        victims = self.policy.evict(count)
        assert len(victims) == len(set(victims)) == min(count, len(self.evictable()))
        for victim in victims:
            assert victim in self.evictable(), "in use, pinned or empty"
            children = [s for s in self.content if self.parent[s] == victim]
            assert not children, "a parent before its children"
            self.forget(victim)
        return victims

    def forget(self, slot: int) -> None:
        del self.slot[self.content.pop(slot)]
        del self.references[slot]
        self.pins.discard(slot)
        self.blank.append(slot)

    def start(self, chain: list[int], owner: int) -> None:
        found = []
        for content in chain:
            if content not in self.slot:
                break
            found.append(self.slot[content])
        missing = chain[len(found) :]
        room = len(self.blank) + len(self.evictable() - set(found))
        if len(missing) > room:
            return
        foresee = getattr(self.policy, "foresee", None)
        if foresee is not None:
            foresee(chain, [NEVER + c for c in chain])
        self.policy.hold(found)
        for slot in found:
            self.references[slot] += 1
        self.evict(max(len(missing) - len(self.blank), 0))
        fresh = [self.blank.pop() for _ in missing]
        above = found[-1] if found else None
        if fresh:
            self.policy.admit(fresh, missing, above, owner)
        for slot, content in zip(fresh, missing, strict=True):
            self.content[slot], self.slot[content] = content, slot
            self.references[slot] = 1
            self.parent[slot], above = above, slot
        self.running.append(found + fresh)

    def finish(self, which: int) -> None:
        slots = self.running.pop(which % len(self.running))[::-1]
        for slot in slots:
            self.references[slot] -= 1
        self.policy.free([slot for slot in slots if not self.references[slot]])

    def pin(self, chain: list[int]) -> None:
        assert isinstance(self.policy, Pinned)
        slots = [self.slot[c] for c in chain if c in self.slot]
        before = len(self.pins)
        outcome = self.policy.pin(slots)
        self.pins |= {s for s in slots if self.policy.is_pinned(s)}
        assert outcome.pinned + outcome.refused == len(slots)
        assert bool(outcome.refused) == bool(outcome.reason)
        assert before <= len(self.pins) == self.policy.pinned <= self.policy.cap

    def unpin(self) -> None:
        assert isinstance(self.policy, Pinned)
        deepest_first = sorted(self.pins, key=lambda s: -self.content[s])
        assert self.policy.unpin(deepest_first) == len(self.pins)
        self.pins.clear()

    def check(self) -> None:
        assert len(self.blank) + len(self.content) == SIZE
        if isinstance(self.policy, Pinned):
            assert self.policy.withheld == len(self.pins & self.idle())


# Content 10 a + b has a as its parent, so equal contents have equal prefixes.
@st.composite
def chains(draw: st.DrawFn) -> list[int]:
    digits = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    chain, content = [], 0
    for digit in digits:
        content = content * 10 + digit
        chain.append(content)
    return chain


steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), chains(), st.integers(0, 2)),
        st.tuples(st.just("finish"), st.integers(0, 5), st.none()),
        st.tuples(st.just("evict"), st.integers(1, 3), st.none()),
        st.tuples(st.just("pin"), chains(), st.none()),
        st.tuples(st.just("unpin"), st.none(), st.none()),
    ),
    max_size=40,
)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_contract(name: str, steps: list[tuple[str, object, object]]) -> None:
    model = Model(policy=ALL[name]())
    has_pins = isinstance(model.policy, Pinned)
    for what, first, second in steps:
        if what == "start":
            model.start(first, second)
        elif what == "finish" and model.running:
            model.finish(first)
        elif what == "evict":
            model.evict(first)
        elif what == "pin" and has_pins:
            model.pin(first)
        elif what == "unpin" and has_pins:
            model.unpin()
        model.check()
    while model.running:
        model.finish(0)
    if has_pins:
        model.unpin()
    cached = len(model.content)
    assert len(model.evict(SIZE)) == cached, "everything idle can go"
    assert model.policy.evict(1) == []


@pytest.mark.parametrize("name", ALL)
def test_dropped_blocks_are_forgotten(name: str) -> None:
    model = Model(policy=ALL[name]())
    model.start([1, 11, 111], 0)
    model.start([1, 12], 1)
    model.finish(0)
    model.finish(0)
    model.policy.drop([model.slot[111], model.slot[11]])
    for content in (111, 11):
        model.forget(model.slot[content])
    model.start([1, 11], 2)
    model.finish(0)
    assert len(model.evict(SIZE)) == 3


@pytest.mark.parametrize("name", POLICIES)
def test_duplicates_do_not_block_eviction(name: str) -> None:
    """A child hangs on one of two blocks of equal content; the other one is in use."""
    policy = POLICIES[name].make(Blocks(4), 0.0)
    foresee = getattr(policy, "foresee", lambda *_: None)
    foresee([1, 2], [NEVER, NEVER])
    policy.admit([0, 1], [1, 2])
    foresee([1], [NEVER])
    policy.admit([2], [1])
    policy.free([2, 0])
    assert sorted(policy.evict(2)) == [0, 2], "1 is in use and its parent idle: a last resort"
    policy.free([1])
    assert policy.evict(2) == [1]


def test_shares_take_from_who_holds_most() -> None:
    policy = Shared(Blocks(10), lambda blocks: POLICIES["lru"].make(blocks, 0.0))
    policy.admit([0, 1], [10, 11], None, 1)
    policy.free([1, 0])
    for slot in range(2, 10):
        policy.admit([slot], [slot], None, 2)
        policy.free([slot])
    assert policy.evict(6) == [2, 3, 4, 5, 6, 7], "the older blocks of the smaller owner stay"
    assert policy.idle_blocks() == {1: 2, 2: 2}


def test_shares_by_weight() -> None:
    policy = Shared(Blocks(9), lambda blocks: POLICIES["lru"].make(blocks, 0.0), {1: 2.0})
    for slot in range(9):
        policy.admit([slot], [slot], None, 1 if slot < 6 else 2)
        policy.free([slot])
    policy.evict(6)
    assert policy.idle_blocks() == {1: 2, 2: 1}


def test_public_blocks_outlive_the_tails_that_hang_on_them() -> None:
    policy = Shared(Blocks(6), lambda blocks: POLICIES["lru"].make(blocks, 0.0))
    policy.admit([0, 1, 2], [1, 2, 3], None, 0)
    policy.admit([3], [4], 2, 1)
    policy.free([3, 2, 1, 0])
    assert policy.evict(4) == [3, 2, 1, 0]


def test_pins_beyond_the_cap_are_refused_with_a_reason() -> None:
    policy = Pinned(POLICIES["lru"].make(Blocks(6), 0.0), size=6, cap=2)
    policy.admit([0, 1, 2], [1, 2, 3])
    policy.free([2, 1, 0])
    outcome = policy.pin([0, 1, 2])
    assert (outcome.pinned, outcome.refused) == (2, 1)
    assert "cap of 2" in outcome.reason
    assert policy.evict(3) == [2]
    assert policy.withheld == 2
    policy.unpin([1, 0])
    assert policy.evict(3) == [1, 0]


def test_expiry_looks_at_the_last_use() -> None:
    now = 0.0
    policy = Expiry(
        POLICIES["lru"].make(Blocks(4), 0.0), size=4, ttl_seconds=10.0, clock=lambda: now
    )
    policy.admit([0, 1], [1, 2])
    now = 100.0
    assert policy.fresh([0, 1]) == 2, "in use"
    policy.free([1, 0])
    now = 105.0
    policy.hold([0])
    policy.free([0])
    now = 112.0
    assert policy.fresh([0, 1]) == 1
