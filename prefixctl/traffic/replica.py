"""One simulated server: a device pool, the tiers below it, the requests that run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefixctl.core.policy.arc import ArcPolicy
from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.expiry import Expiry
from prefixctl.core.policy.make import POLICIES
from prefixctl.core.policy.optimum import MinPolicy
from prefixctl.core.policy.pins import Pinned
from prefixctl.core.policy.port import EvictionPolicy, Foreseeing
from prefixctl.core.policy.shares import Shared
from prefixctl.traffic.pool import Pool
from prefixctl.traffic.setup import Counts, Setup
from prefixctl.traffic.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A request that runs.

    Attributes:
        slots: Its blocks, root first.
        computed_tokens: Prompt tokens that no tier had.
    """

    slots: list[int]
    computed_tokens: int


class Tier:
    """A cache below the device that every block is written through to.

    As with vLLM's offloading connector, a request touches what the tier has of it and leaves
    there what is new.
    """

    def __init__(self, setup: Setup, capacity: int, contents: int) -> None:
        kind = POLICIES[setup.policy]
        policy = kind.make(Blocks(capacity), setup.depth_cost)
        self._pool = Pool(capacity, policy, contents)

    def match(self, chain: Sequence[int]) -> int:
        """Leading blocks of a chain that are there."""
        return self._pool.match(chain)

    def keep(self, chain: Sequence[int]) -> None:
        """Touch and write a request's full blocks."""
        cache_plainly(self._pool, chain)


def cache_plainly(pool: Pool, chain: Sequence[int], owner: int = 0) -> int:
    """Ask for a chain and cache it, as far as there is room; returns the blocks found."""
    slots = pool.find(chain)
    found = len(slots)
    if slots:
        pool.hold(slots)
    fresh = pool.allocate(min(len(chain) - found, pool.available))
    if fresh:
        rest = chain[found : found + len(fresh)]
        pool.store(fresh, rest, slots[-1] if slots else None, owner)
    pool.release((slots + fresh)[::-1])
    return found


class Replica:
    """The state of one server; the clock is set from outside.

    Attributes:
        now: The time in seconds.
        counts: What happened so far.
        computed_tokens: Prompt tokens computed so far: its load.
    """

    def __init__(self, setup: Setup, workload: Workload) -> None:
        self.now = 0.0
        self.counts = Counts()
        self.computed_tokens = 0
        self._setup = setup
        self._workload = workload
        self._kind = POLICIES[setup.policy]
        self._foreseeing: Foreseeing | None = None
        self._optimum: MinPolicy | None = None
        self._pins: Pinned | None = None
        self._expiry: Expiry | None = None
        # What can never be filled needs no memory here.
        most, contents = workload.most_blocks(), workload.contents
        self._capacity = size = min(setup.capacity_blocks, most)
        one_at_a_time = setup.service is None and not setup.rules.tails
        self._overflows = self._kind.overflows and one_at_a_time
        if self._overflows:
            size += workload.longest_chain()
        policy = self._policy(Blocks(size, self._capacity))
        self.pool = Pool(size, policy, contents, pins=self._pins, expiry=self._expiry)
        host, disk = min(setup.host_blocks, most), min(setup.disk_blocks, most)
        self._host = Tier(setup, host, contents) if host else None
        self._disk = Tier(setup, disk, contents) if disk else None

    def _policy(self, blocks: Blocks) -> EvictionPolicy:
        setup = self._setup
        policy: EvictionPolicy
        if setup.tenant_shares:
            policy = Shared(blocks, lambda b: self._kind.make(b, setup.depth_cost))
        else:
            policy = self._kind.make(blocks, setup.depth_cost)
            if isinstance(policy, ArcPolicy | MinPolicy):
                self._foreseeing = policy
            if isinstance(policy, MinPolicy):
                self._optimum = policy
        if setup.ttl_seconds is not None:
            policy = self._expiry = Expiry(
                policy, size=blocks.size, ttl_seconds=setup.ttl_seconds, clock=lambda: self.now
            )
        if setup.pins:
            policy = self._pins = Pinned(policy, size=blocks.size, cap=setup.pin_blocks)
        return policy

    def start(self, number: int, next_uses: Sequence[int] = ()) -> Started | None:
        """Begin a request; None if there is no room for it now."""
        load, setup = self._workload, self._setup
        chain, tokens = load.chains[number], load.input_tokens[number]
        size = load.block_tokens
        total, full = len(chain), len(chain)
        if setup.rules.tails:
            total, full = load.blocks_written(number)
        usable = chain
        if setup.rules.recompute_last and len(chain) * size >= tokens:
            usable = chain[: max(tokens - 1, 0) // size]
        slots = self.pool.find(usable)
        found = len(slots)
        room = self.pool.room_beside(slots)
        if total - found > room:
            if setup.rules.whole:
                return None
            total = full = found + room
        if self._foreseeing is not None and not self._overflows:
            self._foreseeing.foresee(chain, next_uses)
        self.pool.hold(slots)
        computed = tokens - (found + self._fetch(usable, chain, found)) * size
        if self._kind.stepwise and not setup.rules.tails:
            slots = self._step(chain[:total], slots)
        else:
            self._fill(chain, slots, total, full, load.owners[number])
        self._pin(chain, slots, found)
        self._count(chain, tokens, found)
        self.computed_tokens += computed
        return Started(slots=slots, computed_tokens=computed)

    def finish(self, slots: Sequence[int]) -> None:
        """A request is done; its tail is freed first."""
        self.pool.release(slots[::-1])
        if self._overflows:
            self.pool.shrink(self._capacity)
            self.counts.evicted_blocks = self.pool.evicted

    def _fetch(self, usable: Sequence[int], chain: Sequence[int], found: int) -> int:
        """Look into the tiers below; returns the blocks that they have beyond the device."""
        size, beyond = self._workload.block_tokens, found
        if self._host is not None:
            host = max(self._host.match(usable) - beyond, 0)
            self.counts.host_tokens += host * size
            beyond += host
            self._host.keep(chain)
        if self._disk is not None:
            disk = max(self._disk.match(usable) - beyond, 0)
            self.counts.disk_tokens += disk * size
            beyond += disk
            self._disk.keep(chain)
        return beyond - found

    def _fill(
        self, chain: Sequence[int], slots: list[int], total: int, full: int, owner: int
    ) -> None:
        """Blocks for what is not found: prompt, answer, partial tail; in this order."""
        found, known = len(slots), min(len(chain), full)
        slots += self.pool.allocate(total - found)
        public = min(max(self._workload.public_blocks, found), known)
        for start, end, payer in ((found, public, 0), (public, known, owner)):
            if start < end:
                parent = slots[start - 1] if start else None
                self.pool.store(slots[start:end], chain[start:end], parent, payer)
        if known < full:
            parent = slots[known - 1] if known else None
            self.pool.store_private(slots[known:full], parent, owner)

    def _step(self, chain: Sequence[int], slots: list[int]) -> list[int]:
        """Block by block, each with what the policy knows after the one before."""
        pool, optimum = self.pool, self._optimum
        held = list(slots)
        parent = slots[-1] if slots else None
        for position in range(len(slots), len(chain)):
            if not pool.available or (optimum and not pool.blank and optimum.declines()):
                break
            fresh = pool.allocate(1)
            pool.store(fresh, chain[position : position + 1], parent)
            parent = fresh[0]
            held += fresh
        return held

    def _pin(self, chain: Sequence[int], slots: Sequence[int], found: int) -> None:
        pins, wanted = self._pins, self._setup.pins
        if pins is None:
            return
        for position, (content, slot) in enumerate(zip(chain, slots, strict=False)):
            if content not in wanted:
                break
            self.counts.pin_hit_blocks += position < found
            if not pins.is_pinned(slot) and pins.pin([slot]).refused:
                self.counts.refused_pins += 1

    def _count(self, chain: Sequence[int], tokens: int, found: int) -> None:
        counts = self.counts
        counts.requests += 1
        counts.asked_blocks += len(chain)
        counts.hit_blocks += found
        counts.prompt_tokens += tokens
        counts.evicted_blocks = self.pool.evicted
        counts.expired_blocks = self.pool.expired
        counts.pinned_blocks = 0 if self._pins is None else self._pins.pinned
        in_use = min(self.pool.in_use, self._capacity)
        counts.peak_in_use_blocks = max(counts.peak_in_use_blocks, in_use)
