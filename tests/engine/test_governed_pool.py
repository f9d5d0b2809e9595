"""The governed pool under vLLM's own cache manager, without a model."""

from __future__ import annotations

import random

import pytest

from prefixctl.core.governing import DeviceSettings

# What vLLM and torch warn of when they are imported is not ours to mend.
pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
POLICIES = ("lru", "lru_freq", "cost_aware")


def bench(blocks: int = 41, stock: bool = False, **settings):
    from tests.engine.pools import Bench

    settings = {"ttl_seconds": None, **settings}
    return Bench(blocks, None if stock else DeviceSettings(**settings))


@pytest.mark.parametrize("seed", range(6))
def test_lru_finds_what_stock_vllm_finds(seed):
    """The policy `lru` is vLLM's own order, block for block."""
    from tests.engine.pools import prompts

    governed, stock = bench(policy="lru"), bench(stock=True)
    hits = [(governed.run(p), stock.run(p)) for p in prompts(seed, 300)]
    assert sum(hit for hit, _ in hits) > 0
    assert [ours for ours, _ in hits] == [theirs for _, theirs in hits]
    assert governed.pool.governor.counters["evictions", "capacity"] > 100


class Storm:
    """Requests overlap, are refused, pins come and go, contents are lost, the cache is reset."""

    def __init__(self, governed, seed):
        self.governed = governed
        self.rng = random.Random(seed)
        self.open = []
        self.pins = []
        self.seen = []

    def step(self, prompt):
        self.governed.clock.now += self.rng.choice([0, 1, 5])
        self.seen.append(prompt)
        acts = (self.start, self.pin, self.unpin, self.lose, self.reset)
        self.rng.choices(acts, weights=(60, 10, 6, 4, 2))[0](prompt)
        while self.open and (len(self.open) > 3 or self.rng.random() < 0.4):
            self.governed.end(self.open.pop(self.rng.randrange(len(self.open))))
        self.governed.check()

    def start(self, prompt):
        started = self.governed.start(prompt, self.rng.choice([None, "a", "b"]))
        if started is not None:
            self.open.append(started[0])

    def pin(self, prompt):
        name, salt = f"p{len(self.seen) % 5}", self.rng.choice([None, "a"])
        if self.governed.pin(name, self.rng.choice(self.seen), salt=salt)["accepted"]:
            self.pins.append(name)

    def unpin(self, prompt):
        if self.pins:
            self.governed.ask("unpin", name=self.pins.pop(self.rng.randrange(len(self.pins))))

    def lose(self, prompt):
        self.governed.pool.evict_blocks({self.rng.randrange(1, 41), self.rng.randrange(1, 41)})

    def reset(self, prompt):
        assert self.governed.manager.reset_prefix_cache() == (not self.open)

    def finish(self):
        for request in self.open:
            self.governed.end(request)
        for name in dict.fromkeys(self.pins):
            self.governed.ask("unpin", name=name)
        self.governed.check()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_counts_add_up_whatever_happens(policy, shares, seed):
    from tests.engine.pools import prompts

    governed = bench(policy=policy, tenant_shares=shares, pin_share=0.5, ttl_seconds=50)
    storm = Storm(governed, seed)
    for prompt in prompts(seed, 400):
        storm.step(prompt)
    storm.finish()
    assert governed.pool.get_num_free_blocks() == 40


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pinned_prefix_survives_any_flood(policy):
    governed = bench(policy=policy, pin_share=0.5)
    prefix = list(range(40))
    assert governed.pin("a@1", prefix)["pinned"] == 0
    assert governed.run([*prefix, 1, 2]) == 0
    for start in range(100, 4000, 50):
        governed.run(range(start, start + 50))
    assert governed.run([*prefix, 1, 2]) == 40
    governed.check()


def test_a_prefix_that_is_cached_is_pinned_at_once():
    governed = bench(pin_share=0.5)
    governed.run([*range(20), 99])
    answer = governed.pin("a@1", range(20))
    assert (answer["accepted"], answer["pinned"], answer["resident"]) == (True, 5, 5)
    assert governed.ask("unpin", name="a@1") == {"name": "a@1", "unpinned": 5}
    assert governed.ask("unpin", name="a@1") == {"name": "a@1", "unpinned": None}
    governed.check()


def test_a_pin_beyond_the_cap_is_refused_with_the_figures():
    governed = bench(pin_share=0.2)
    assert governed.pool.pins.cap == 8
    assert governed.pin("a@1", range(24))["accepted"]
    answer = governed.pin("b@1", range(100, 112))
    assert not answer["accepted"]
    assert "3 more blocks" in answer["reason"] and "2 of the cap of 8" in answer["reason"]
    # What two prefixes share is reserved once.
    assert governed.pin("c@1", range(32))["accepted"]


def test_the_longest_request_runs_beside_pins_to_the_cap():
    """Pinned to the cap, a request of the longest length, and one behind it, both run."""
    from tests.engine.pools import MAX_LEN

    governed = bench(blocks=24, pin_share=1.0)
    assert governed.pool.pins.cap == 23 - 16
    governed.pin("a@1", range(28))
    governed.run(range(28))
    assert governed.ask("state")["blocks"]["pinned"] == 7
    assert governed.run(range(1000, 1000 + MAX_LEN)) == 0
    assert governed.run(range(2000, 2010)) == 0
    assert governed.run([*range(28), 5]) == 28
    governed.check()


def test_usage_is_that_of_running_requests():
    governed = bench(pin_share=0.5)
    governed.pin("a@1", range(40))
    governed.run(range(40))
    assert governed.pool.get_usage() == 0
    assert governed.ask("state")["blocks"]["pinned_idle"] == 10
    request, hit = governed.start([*range(40), 1])
    assert hit == 40
    assert governed.pool.get_usage() == pytest.approx(11 / 40)
    governed.end(request)


def test_a_reset_succeeds_with_pins_and_they_stay_wished_for():
    governed = bench(pin_share=0.5)
    governed.pin("a@1", range(40))
    governed.run(range(40))
    request, _ = governed.start(range(500, 510))
    assert not governed.manager.reset_prefix_cache(), "a request is running"
    assert governed.ask("state")["blocks"]["pinned"] == 10, "and the pins are as they were"
    governed.end(request)
    assert governed.manager.reset_prefix_cache()
    assert governed.ask("state")["blocks"]["pinned"] == 0
    missing = governed.ask("drain")["missing"]
    assert missing["name"] == "a@1" and missing["token_ids"] == list(range(40))
    assert governed.ask("drain")["missing"] is None, "one process at a time brings it up"
    governed.run(missing["token_ids"])
    assert governed.ask("state")["pins"][0]["pinned"] == 10
    governed.check()


def test_a_pin_is_hot_by_itself_and_cools_down():
    governed = bench(pin_share=0.5)
    answer = governed.pin("a@1", range(40), auto_hits=3)
    assert answer["accepted"] and not answer["active"]
    governed.run(range(41))
    for _ in range(3):
        governed.clock.now += 1000
        assert governed.ask("state")["blocks"]["pinned"] == 0
        governed.run([*range(40), 7])
    assert governed.ask("state")["blocks"]["pinned"] == 10
    governed.clock.now += 1700
    assert governed.ask("state")["blocks"]["pinned"] == 10, "two of three hits within the hour"
    governed.clock.now += 1000
    assert governed.ask("state")["blocks"]["pinned"] == 0
    governed.check()


def test_too_old_blocks_are_not_found_and_make_room():
    governed = bench(ttl_seconds=60)
    governed.run(range(40))
    governed.clock.now = 59
    assert governed.run([*range(40), 1]) == 40
    governed.clock.now = 118
    assert governed.run([*range(40), 1]) == 40
    governed.clock.now = 179
    assert governed.run([*range(40), 1]) == 0
    assert governed.pool.governor.counters["evictions", "ttl"] == 10
    governed.check()


def test_a_running_request_keeps_its_blocks_fresh():
    governed = bench(ttl_seconds=60)
    request, _ = governed.start(range(41))
    governed.clock.now = 1000
    assert governed.run([*range(40), 1]) == 40
    governed.end(request)


def test_one_tenant_cannot_push_out_the_others():
    quiet = [*range(40), 1]
    for shares, found in ((False, 0), (True, 40)):
        governed = bench(tenant_shares=shares)
        governed.run(quiet, "quiet")
        for start in range(100, 4000, 30):
            governed.run(range(start, start + 30), "loud")
        assert governed.run(quiet, "quiet") == found
        governed.check()


def test_owners_hits_and_attempts_are_counted():
    governed = bench()
    governed.run(range(21), "a")
    governed.run(range(21), "b")
    counters = governed.pool.governor.counters
    assert counters["cross_tenant_hits",] == 0
    owners = governed.ask("state")["owners"]
    assert [owner["blocks"] for owner in owners] == [5, 5]
    assert not any(salt in str(owners) for salt in ('"a"', "'a'"))


def test_a_large_section_is_governed_up_to_the_cap_and_a_short_prompt_not_at_all():
    # 8 bytes a token: 128 bytes are 16 tokens.
    governed = bench(pin_share=0.5, max_block_bytes=128, min_tokens=10)
    answer = governed.pin("a@1", range(40), section_ends=[12, 36])
    assert answer["governed_tokens"] == 28 and "governed up to token 28" in answer["reason"]
    assert governed.pin("b@1", range(9)) == {
        "name": "b@1",
        "blocks": 0,
        "accepted": True,
        "reason": "9 tokens are below the threshold of 10; it is cached as any other request",
    }
    refusing = bench(pin_share=0.5, max_block_bytes=128, refuse_above=True)
    answer = refusing.pin("a@1", range(40), section_ends=[12, 36])
    assert not answer["accepted"] and "above the" in answer["reason"]


def test_a_prefix_that_no_request_could_hold_is_refused():
    governed = bench(blocks=401, pin_share=0.9)
    answer = governed.pin("a@1", range(64))
    assert not answer["accepted"] and "longer than any prompt here: 63" in answer["reason"]


def test_what_hangs_on_a_stale_block_goes_and_the_hit_stays():
    """A request that hits half of a chain whose rest is too old keeps its half."""
    governed = bench(ttl_seconds=60)
    governed.run(range(41))
    governed.clock.now = 50
    assert governed.run([*range(20), 99]) == 20
    governed.clock.now = 100
    request, hit = governed.start([*range(40), 1])
    assert hit == 20
    governed.check()
    governed.end(request)
    governed.check()


def test_orders_do_not_grow_without_evictions():
    governed = bench(blocks=401, policy="lru_freq", tenant_shares=True)
    for turn in range(3000):
        governed.run(range(20), f"t{turn % 7}")
    policy = governed.pool.governor._policy
    entries = sum(len(heap) for order in policy._orders.values() for heap in order._heaps)
    assert entries < 7 * 3 * 400
    for start in range(0, 40_000, 50):
        governed.run(range(start, start + 50), f"new{start}")
    owners = governed.pool.governor.owners.blocks
    assert set(policy._orders) == {n for n, blocks in owners.items() if blocks}
    assert len(policy._orders) < 800, "an owner without blocks is forgotten"
    governed.check()


def test_events_say_what_the_pool_did():
    """Every removal that the policy chose is on the stream, once."""
    from vllm.distributed.kv_events import BlockRemoved, BlockStored

    from tests.engine.pools import Bench, prompts

    governed = Bench(41, DeviceSettings(policy="lru_freq"), events=True)
    alive: set[bytes] = set()
    for prompt in prompts(1, 200):
        governed.run(prompt)
        for event in governed.manager.take_events():
            if isinstance(event, BlockStored):
                alive |= set(event.block_hashes)
            elif isinstance(event, BlockRemoved):
                assert set(event.block_hashes) <= alive
                alive -= set(event.block_hashes)
    cached = {b.block_hash[:-4] for b in governed.pool.blocks if b.block_hash is not None}
    assert alive == {int.from_bytes(h, "big") & (1 << 64) - 1 for h in cached} or alive == cached
