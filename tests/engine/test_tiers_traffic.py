"""Random traffic over a host tier that is too small: its accounts, and what is served."""

from __future__ import annotations

import random

import pytest
from tier_bench import Bench, key

from prefixctl.core.policy.tier import Rules
from prefixctl.tiers.block import owner_tag

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's, at import
]
ROWS = 12


def content(name: bytes) -> int:
    return (int.from_bytes(name[:32], "big") + 1) % 128


class Traffic:
    """Requests over four chains that wait, load, store, or are aborted."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.manager = bench, bench.manager
        self.choose = random.Random(seed)
        self.waiting: list[tuple] = []
        self.loading: list[tuple] = []
        self.came = 0

    def come(self) -> None:
        self.came += 1
        chain, count = self.choose.randrange(4) * 100, self.choose.randrange(1, 10)
        context = self.bench.context(f"r{self.came}", count, chain, f"t{chain % 3}")
        self.waiting.append((context, [key(chain + at) for at in range(count)]))

    def look(self, context, keys) -> bool:
        """Whether a request goes on: it is aborted, or served with what was found."""
        from vllm.v1.kv_offload.base import LookupResult

        ready, pending = [], False
        for each in keys:
            found = self.manager.lookup(each, context)
            pending |= found is LookupResult.HIT_PENDING
            if found is LookupResult.MISS:
                break
            ready.append(each)
        if self.choose.random() < 0.1:
            self.manager.on_request_finished(context)
            return True
        if pending or self.choose.random() < 0.3:
            return False
        self.load(context, ready)
        self.store(context, keys[len(ready) :])
        self.bench.primary.release_served({context.req_id})
        return True

    def load(self, context, ready) -> None:
        if ready:
            rows = self.manager.prepare_load(ready, context).chunk_ids
            for row, each in zip(rows, ready, strict=True):
                assert (self.bench.memory[row] == content(each)).all(), "a wrong row"
        self.loading.append((context, ready))

    def store(self, context, keys) -> None:
        output = self.manager.prepare_store(keys, context)
        if output is not None and output.keys_to_store:
            for row, each in zip(output.store_spec.chunk_ids, output.keys_to_store, strict=True):
                self.bench.memory[row] = content(each)
            self.manager.complete_store(set(output.keys_to_store), context)

    def end_one(self) -> None:
        context, held = self.loading.pop(self.choose.randrange(len(self.loading)))
        self.manager.complete_load(held, context)
        self.manager.on_request_finished(context)

    def turn(self, number: int) -> None:
        if len(self.waiting) < 4 and self.choose.random() < 0.5:
            self.come()
        self.waiting = [each for each in self.waiting if not self.look(*each)]
        while self.loading and self.choose.random() < 0.6:
            self.end_one()
        if number % 40 == 0:
            pinned = 100 * self.choose.randrange(4)
            self.bench.primary.policy.want([key(pinned + at) for at in range(3)])
        if number % 100 == 99:
            self.bench.primary.purge({owner_tag(f"t{self.choose.randrange(3)}")})
        self.bench.step()

    def check(self) -> None:
        primary, host = self.bench.primary, self.bench.primary.policy
        chunks = host._chunks
        idle = {each for each, chunk in chunks.items() if chunk.ref_cnt == 0}
        assert idle == host._idle
        assert len(idle) == primary._num_evictable_cache_chunks
        assert len(chunks) + primary._get_num_free_chunks() == ROWS
        assert host._withdrawn == idle & set(host._claimed)
        assert set(host._claims) <= {context.req_id for context, _ in self.waiting}
        evictable = {slot for slot in range(ROWS) if host._blocks.idle[slot]}
        pinned = {slot for slot in range(ROWS) if host._policy.is_pinned(slot)}
        assert evictable == {chunks[each].chunk_id for each in idle - host._withdrawn} - pinned


@pytest.mark.parametrize("policy", ["lru", "lru_freq", "cost_aware"])
@pytest.mark.parametrize("shares", [False, True])
def test_traffic_over_a_small_host_tier_keeps_its_accounts(tmp_path, policy, shares):
    from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy

    GovernedCachePolicy.rules = Rules(policy=policy, shares=shares, pinned_share=0.2)
    bench = Bench(tmp_path / "tier", rows=ROWS)
    traffic = Traffic(bench, seed=7)
    for number in range(1500):
        traffic.turn(number)
        traffic.check()
        if number % 10 == 0:
            bench.tier.drain_jobs()
    assert bench.tier.store.snapshot()["hits"] > 100, "nothing came up"
    assert traffic.came > 100
    while traffic.loading:
        traffic.end_one()
    for context, _ in traffic.waiting:
        bench.manager.on_request_finished(context)
    bench.finish()
    assert not bench.primary.policy._claimed
    bench.manager.shutdown()
