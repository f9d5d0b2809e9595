"""The simulated server under vLLM's rules, against a literal model of vLLM's block pool."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixctl.core.policy.make import POLICIES
from prefixctl.traffic.replay import replay
from prefixctl.traffic.setup import PLAIN, Counts, Service, Setup
from prefixctl.traffic.workload import Workload

SIZE = 4


def requests(*prompts: tuple[str, int, int], every: float = 10.0) -> Workload:
    """Requests as (blocks by letter, tokens behind them, tokens of the answer)."""
    names: dict[str, int] = {}
    chains = [
        [names.setdefault(text[:end], len(names)) for end in range(1, len(text) + 1)]
        for text, _, _ in prompts
    ]
    return Workload(
        block_tokens=SIZE,
        arrivals_seconds=[every * number for number in range(len(prompts))],
        input_tokens=[SIZE * len(text) + tail for text, tail, _ in prompts],
        output_tokens=[answer for _, _, answer in prompts],
        chains=chains,
        contents=max(len(names), 1),
        owners=[0] * len(prompts),
    )


def run(load: Workload, capacity: int, policy: str = "lru", **more: object) -> Counts:
    return replay(load, Setup(policy=policy, capacity_blocks=capacity, **more)).counts


def test_the_last_token_is_computed_again() -> None:
    even = requests(("ab", 0, 1), ("ab", 0, 1))
    assert run(even, 10).hit_blocks == 1, "the whole prompt is cached: its last block is redone"
    assert run(even, 10, rules=PLAIN).hit_blocks == 2
    assert run(requests(("ab", 1, 1), ("ab", 1, 1)), 10).hit_blocks == 2


def test_tails_and_answers_take_room() -> None:
    assert run(requests(("ab", 1, 4)), 3).rejected == 0, "9 tokens, 3 fed back: 12 of 12 places"
    refused = run(requests(("ab", 1, 5)), 3)
    assert (refused.rejected, refused.requests, refused.asked_blocks) == (1, 1, 2)
    assert refused.prompt_tokens == 9
    assert run(requests(("ab", 1, 5)), 3, rules=PLAIN).rejected == 0


def test_a_blank_block_is_taken_before_a_cached_one() -> None:
    """The tail of the first request is free again, and enough for the second one."""
    load = requests(("ab", 1, 1), ("c", 0, 1), ("ab", 1, 1))
    assert run(load, 3).hit_blocks == 2
    assert run(load, 3).evicted_blocks == 1, "the third request's tail takes c's block"


def test_the_tail_of_a_prefix_goes_first() -> None:
    load = requests(("abcd", 0, 1), ("xy", 0, 1), ("abcd", 0, 1))
    assert run(load, 4).hit_blocks == 2


def test_blocks_in_use_are_never_evicted_and_requests_wait() -> None:
    """The first answer runs for 100 s; each request fits only when the one before is done."""
    service = Service(prefill_tokens_per_second=1e9, decode_tokens_per_second=0.04)
    load = requests(("abc", 0, 4), ("xyz", 0, 1), ("abc", 1, 1), every=1.0)
    counts = run(load, 6, service=service)
    assert counts.waited == 2, "abc and its answer hold 4 of 6 blocks, xyz 3"
    assert counts.peak_in_use_blocks <= 6
    assert counts.requests == 3
    roomy = run(load, 20, service=service)
    assert (roomy.waited, roomy.hit_blocks) == (0, 3), "running blocks are hit as well"
    assert roomy.peak_in_use_blocks >= 7


def test_only_so_many_run_at_once() -> None:
    service = Service(prefill_tokens_per_second=1e9, decode_tokens_per_second=0.1, max_running=1)
    load = requests(("a", 1, 2), ("b", 1, 2), ("c", 1, 2), every=1.0)
    assert run(load, 100, service=service).waited == 2


def test_time_to_live_counts_from_the_last_use() -> None:
    load = requests(*[("ab", 1, 1)] * 4, every=10.0)
    assert run(load, 10, ttl_seconds=15.0).hit_blocks == 6, "every use renews it"
    stale = run(load, 10, ttl_seconds=5.0)
    assert (stale.hit_blocks, stale.expired_blocks) == (0, 6)


def test_a_tier_finds_what_the_device_has_lost() -> None:
    load = requests(("abc", 1, 1), ("xyz", 1, 1), ("abc", 1, 1), ("uvw", 1, 1), ("xyz", 1, 1))
    device = run(load, 4)
    assert device.hit_blocks == 0
    host = run(load, 4, host_blocks=6)
    assert (host.hit_blocks, host.host_tokens, host.disk_tokens) == (0, 3 * SIZE, 0)
    both = run(load, 4, host_blocks=6, disk_blocks=9)
    assert (both.host_tokens, both.disk_tokens) == (3 * SIZE, 3 * SIZE)
    alone = run(load, 4, disk_blocks=9)
    assert (alone.host_tokens, alone.disk_tokens) == (0, 6 * SIZE)


def test_a_tier_continues_the_devices_hit() -> None:
    load = requests(("abcd", 1, 1), ("xy", 1, 1), ("abcd", 1, 1))
    counts = run(load, 5, host_blocks=50)
    assert (counts.hit_blocks, counts.host_tokens) == (2, 2 * SIZE)


@dataclass
class Block:
    content: int | None = None
    users: int = 0


@dataclass
class VllmPool:
    """vLLM's `BlockPool` word for word: one free queue, blank blocks in front, hits touch."""

    capacity: int
    free: deque[Block] = field(default_factory=deque)
    cached: dict[int, list[Block]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free.extend(Block() for _ in range(self.capacity))

    def start(self, load: Workload, number: int) -> tuple[list[Block], int] | None:
        chain, tokens = load.chains[number], load.input_tokens[number]
        hits: list[Block] = []
        for content in chain[: max(tokens - 1, 0) // SIZE]:
            if not self.cached.get(content):
                break
            hits.append(self.cached[content][0])
        total, full = load.blocks_written(number)
        free = len(self.free) - sum(not block.users for block in hits)
        if total - len(hits) > free:
            return None
        for block in hits:
            if not block.users:
                self.take(block)
            block.users += 1
        fresh = [self.free.popleft() for _ in range(total - len(hits))]
        for block in fresh:
            self.forget(block)
            block.users = 1
        blocks = hits + fresh
        for position in range(len(hits), full):
            # Answers are never asked for: a content of its own.
            content = chain[position] if position < len(chain) else -1 - id(blocks[position])
            blocks[position].content = content
            self.cached.setdefault(content, []).append(blocks[position])
        return blocks, len(hits)

    def take(self, block: Block) -> None:
        place = next(i for i, other in enumerate(self.free) if other is block)
        del self.free[place]

    def forget(self, block: Block) -> None:
        if block.content is not None:
            others = self.cached[block.content]
            others[:] = [other for other in others if other is not block]
            block.content = None

    def finish(self, blocks: list[Block]) -> None:
        blank, full = [], []
        for block in reversed(blocks):
            block.users -= 1
            if not block.users:
                (blank if block.content is None else full).append(block)
        self.free.extendleft(reversed(blank))
        self.free.extend(full)


def literal(load: Workload, capacity: int, service: Service | None) -> tuple[int, int]:
    """Hit blocks and rejected requests of a literal server; requests start in order."""
    pool = VllmPool(capacity)
    running: list[tuple[float, int, list[Block]]] = []
    now, hits, rejected = 0.0, 0, 0
    for number in range(len(load)):
        now = max(now, load.arrivals_seconds[number])
        while running and running[0][0] <= now:
            pool.finish(heappop(running)[2])
        started = pool.start(load, number)
        while started is None and running:
            end, _, blocks = heappop(running)
            now = max(now, end)
            pool.finish(blocks)
            started = pool.start(load, number)
        if started is None:
            rejected += 1
            continue
        blocks, found = started
        hits += found
        if service is None:
            pool.finish(blocks)
            continue
        computed = load.input_tokens[number] - found * SIZE
        seconds = computed / service.prefill_tokens_per_second
        seconds += load.output_tokens[number] / service.decode_tokens_per_second
        heappush(running, (now + seconds, number, blocks))
    return hits, rejected


prompts = st.lists(
    st.tuples(
        st.text(alphabet="abc", min_size=0, max_size=5), st.integers(0, SIZE - 1), st.integers(0, 9)
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(prompts=prompts, capacity=st.integers(2, 24))
def test_lru_is_vllm_one_request_at_a_time(
    prompts: list[tuple[str, int, int]], capacity: int
) -> None:
    load = requests(*prompts)
    counts = run(load, capacity)
    assert (counts.hit_blocks, counts.rejected) == literal(load, capacity, None)


@settings(max_examples=150, deadline=None)
@given(prompts=prompts, capacity=st.integers(2, 24), every=st.floats(0.1, 8.0))
def test_lru_is_vllm_with_requests_that_overlap(
    prompts: list[tuple[str, int, int]], capacity: int, every: float
) -> None:
    service = Service(prefill_tokens_per_second=5.0, decode_tokens_per_second=2.0)
    load = requests(*prompts, every=every)
    counts = run(load, capacity, service=service)
    assert (counts.hit_blocks, counts.rejected) == literal(load, capacity, service)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(prompts=prompts, capacity=st.integers(1, 24), overlap=st.booleans())
def test_counts_add_up(
    policy: str, prompts: list[tuple[str, int, int]], capacity: int, overlap: bool
) -> None:
    load = requests(*prompts, every=1.0)
    service = Service(prefill_tokens_per_second=5.0, decode_tokens_per_second=2.0)
    counts = run(load, capacity, policy, service=service if overlap else None)
    assert counts.requests == len(prompts)
    assert counts.asked_blocks == sum(map(len, load.chains))
    assert counts.prompt_tokens == sum(load.input_tokens)
    assert counts.hit_blocks * SIZE <= counts.prompt_tokens - sum(t > 0 for t in load.input_tokens)
    assert counts.peak_in_use_blocks <= capacity
    fits = [load.blocks_written(number)[0] <= capacity for number in range(len(load))]
    assert counts.rejected == fits.count(False), "no request starves"


@settings(max_examples=40, deadline=None)
@given(prompts=prompts, tiers=st.tuples(*[st.integers(0, 20)] * 2), capacity=st.integers(2, 12))
def test_tiers_only_add(
    prompts: list[tuple[str, int, int]], tiers: tuple[int, int], capacity: int
) -> None:
    load = requests(*prompts)
    counts = run(load, capacity, host_blocks=tiers[0], disk_blocks=tiers[1])
    alone = run(load, capacity)
    assert counts.hit_blocks == alone.hit_blocks
    assert bool(counts.host_tokens) <= bool(tiers[0])
    assert bool(counts.disk_tokens) <= bool(tiers[1])
    found = counts.hit_blocks * SIZE + counts.host_tokens + counts.disk_tokens
    assert found <= counts.prompt_tokens
