"""What the engine's desk asks of the tiers below it: pins, time to live, purging."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from tier_bench import Bench, hits, key

from prefixctl.core.pinbook import Wish
from prefixctl.core.policy.tier import Rules

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's, at import
]
ROW_FILE = 8192
"""Disk space of a bench's block: 4,096 bytes and a header, in whole pages."""


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def rules() -> Iterator[Clock]:
    """The host tier's rules for a test, and its clock."""
    from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy

    clock, before = Clock(), GovernedCachePolicy.clock
    GovernedCachePolicy.rules = Rules(ttl_seconds=100.0, pinned_share=0.5)
    GovernedCachePolicy.clock = clock
    yield clock
    GovernedCachePolicy.rules, GovernedCachePolicy.clock = Rules(), before


@contextmanager
def stock_keys() -> Iterator[None]:
    """What is installed for sharing is taken out again."""
    from vllm.v1.core import block_pool, kv_cache_utils

    stock = kv_cache_utils.generate_block_hash_extra_keys
    try:
        yield
    finally:
        kv_cache_utils.generate_block_hash_extra_keys = stock
        block_pool.generate_block_hash_extra_keys = stock


def below(bench: Bench):
    from prefixctl.vllm_plugin.tiers.below import TiersBelow

    return TiersBelow(bench.connector.scheduler)


def wish(*numbers: int) -> tuple[Wish, ...]:
    return (Wish(name="support@3", keys=tuple(key(n)[:-4] for n in numbers)),)


def in_host(bench: Bench, count: int) -> list[int]:
    return [number for number in range(count) if bench.primary._policy.get(key(number))]


def test_what_is_pinned_on_the_device_stays_in_host_memory_and_on_the_disk(tmp_path, rules):
    bench = Bench(tmp_path / "tier", rows=8, max_bytes=12 * ROW_FILE, pin_share=0.5)
    tiers = below(bench)
    bench.store("pinned", 2)
    tiers.hold(wish(0, 1, 2))
    for flood in range(10):
        bench.store(f"flood {flood}", 6, start=100 + 10 * flood)
    assert in_host(bench, 3) == [0, 1]
    assert {key(0), key(1)} <= set(bench.tier.store.keys())
    assert tiers.state() == {
        "host": {"blocks": 8, "pinned": 2},
        "nvme": {"blocks": 12, "pinned": 2, "closed": ""},
    }
    bench.store("the rest of it", 3)
    assert tiers.state()["host"]["pinned"] == 3, "a block that came later is not held"
    bench.primary.reset_cache()
    assert hits(bench, "again", 3) == [True] * 3, "pins were lost with a reset"
    assert tiers.state()["host"]["pinned"] == 3
    tiers.hold(())
    for flood in range(10):
        bench.store(f"second flood {flood}", 6, start=500 + 10 * flood)
    assert in_host(bench, 3) == []
    assert not {key(0), key(1), key(2)} & set(bench.tier.store.keys())
    assert tiers.state()["nvme"]["pinned"] == 0
    bench.manager.shutdown()


def test_a_pinned_prefix_is_known_by_its_version_whoever_stores_it(tmp_path, rules):
    bench = Bench(tmp_path / "tier", rows=16, pin_share=0.1)
    tiers = below(bench)
    keys = tuple(key(n)[:-4] for n in range(3))
    tiers.hold((Wish(name="support@3#0123", keys=keys), Wish(name="x" * 65, keys=(b"x",))))
    bench.store("nobody's", 4)
    labels = [bench.tier.store.place_of(key(n)).label for n in range(4)]
    assert labels == ["support@3", "support@3", "support@3", ""]
    bench.manager.shutdown()


def test_pins_below_end_at_their_share_and_requests_go_on(tmp_path, rules):
    bench = Bench(tmp_path / "tier", rows=8)
    tiers = below(bench)
    bench.store("long", 8)
    tiers.hold(wish(*range(8)))
    assert tiers.state()["host"]["pinned"] == 4
    for flood in range(5):
        bench.store(f"flood {flood}", 4, start=100 + 10 * flood)
    assert in_host(bench, 8) == [0, 1, 2, 3]
    bench.manager.shutdown()


def test_a_chunk_that_nobody_used_for_too_long_is_not_found_in_host_memory(tmp_path, rules):
    bench = Bench(tmp_path / "tier")
    tiers = below(bench)
    bench.store("one", 4)
    for path in bench.files():
        path.unlink()
    rules.now += 99
    assert hits(bench, "two", 4) == [True] * 4
    rules.now += 99
    tiers.hold(wish(0))
    rules.now += 2
    assert hits(bench, "three", 4) == [True, False, False, False], "a pin has no age"
    assert in_host(bench, 4) == [0]
    assert bench.primary.left["expired"] == 3
    bench.store("four", 4)
    assert hits(bench, "five", 4) == [True] * 4
    free = bench.primary._get_num_free_chunks()
    assert free == 8 - len(bench.primary._policy) == 4
    bench.manager.shutdown()


def test_purging_an_owner_leaves_the_others_and_says_what_is_in_use(tmp_path, rules):
    bench = Bench(tmp_path / "tier", rows=16)
    tiers = below(bench)
    bench.store("shop", 4, owner="shop")
    bench.store("bank", 4, start=50, owner="bank")
    context = bench.context("reading", 1, owner="shop")
    bench.manager.prepare_load([key(0)], context)
    assert tiers.purge(["shop", "nobody"]) == (3, 1)
    assert in_host(bench, 4) == [0]
    bench.manager.complete_load([key(0)], context)
    bench.manager.on_request_finished(context)
    assert tiers.purge(["shop"]) == (1, 0)
    assert in_host(bench, 60) == [50, 51, 52, 53]
    assert bench.primary._num_evictable_cache_chunks == 4
    bench.store("later", 12, start=70)
    assert len(bench.primary._policy) == 16, "the room of purged chunks is lost"
    bench.manager.shutdown()


def test_a_chunk_that_is_offered_again_keeps_its_owner(tmp_path, rules):
    bench = Bench(tmp_path / "tier", rows=4)
    bench.store("bank", 3, start=50, owner="bank")
    reading = bench.context("reading", 3, owner="bank", start=50)
    bench.manager.prepare_load([key(n) for n in (50, 51, 52)], reading)
    shop = bench.context("shop", 3, owner="shop")
    keys = [key(n) for n in range(3)]
    assert bench.manager.prepare_store(keys[:2], shop) is None, "there was room"
    bench.manager.complete_load([key(n) for n in (50, 51, 52)], reading)
    bench.manager.prepare_store(keys, shop)
    bench.manager.complete_store(keys, shop)
    bench.manager.on_request_finished(shop)
    bench.finish()
    assert below(bench).purge(["shop"])[0] == 3
    bench.manager.shutdown()


def test_what_leaves_for_a_load_from_the_disk_is_counted(tmp_path, rules):
    bench = Bench(tmp_path / "tier", rows=4)
    bench.store("one", 4)
    bench.primary.prepare_write([key(90), key(91)], bench.context("two", 2, start=90))
    assert bench.primary.left["space"] == 2
    bench.manager.shutdown()


def test_the_host_tiers_series_say_what_left(tmp_path, rules):
    bench = Bench(tmp_path / "tier")
    bench.store("one", 4, owner="shop")
    for flood in range(3):
        bench.store(f"flood {flood}", 4, start=100 + 10 * flood)
    below(bench).purge(["shop"])
    values = bench.primary.get_stats()._values
    gone = {labels[1]: count for labels, count in values["prefixctl_tier_evictions"].items()}
    assert gone.get("space") == 8
    assert values["prefixctl_tier_blocks"] == {("host",): 8 - gone.get("purged", 0)}
    assert values["prefixctl_tier_max_bytes"] == {("host",): 8 * Bench.ROW}
    again = bench.primary.get_stats()._values.get("prefixctl_tier_evictions", {})
    assert sum(again.values()) == 0, "an event was handed on twice"
    bench.manager.shutdown()


# ---- the device ----


def test_purging_empties_a_tenants_blocks_on_the_device_in_use_or_not():
    from pools import BLOCK
    from pools import Bench as Pool

    from prefixctl.core.governing import DeviceSettings
    from prefixctl.core.tenancy import salt_pseudonym

    pool = Pool(60, DeviceSettings(pin_share=0.4))
    prompt = range(4 * BLOCK + 1)
    for salt in ("shop", "bank"):
        pool.run(prompt, salt)
    reading, hit = pool.start(prompt, "shop")
    assert hit == 4 * BLOCK
    told = pool.desk.answer({"ask": "purge", "owners": [salt_pseudonym("shop")]})
    assert told == {"device": 4, "host": 0, "left": 1, "unknown": False}
    pool.end(reading)
    assert pool.desk.answer({"ask": "purge", "owners": [salt_pseudonym("shop")]})["left"] == 0
    assert pool.run(prompt, "shop") == 0
    assert pool.run(prompt, "bank") == 4 * BLOCK
    pool.check()


def test_a_running_request_of_a_group_counts_as_left_when_the_group_is_purged():
    from pools import BLOCK, SECRET
    from pools import Bench as Pool

    from prefixctl.core.governing import DeviceSettings, Sharing
    from prefixctl.core.tenancy import salt_pseudonym
    from prefixctl.core.ticket import Ticket
    from prefixctl.ids import Salt

    with stock_keys():
        pool = Pool(60, DeviceSettings(sharing=Sharing.ON))
        public = list(range(4 * BLOCK))
        pool.ask("share", stamp="1", groups={"group": {"support@1": public}})
        ticket = Ticket(tenant="shop", salt=Salt("salt-shop"), group_salt=Salt("group"))
        running, _ = pool.start([*public, 7, 8], "salt-shop", ticket=ticket.sign(SECRET))
        for owner, left in (("group", 1), ("salt-shop", 1), ("another", 0)):
            told = pool.ask("purge", owners=[salt_pseudonym(owner)])
            assert told["left"] == left, owner
        pool.end(running)
        assert pool.ask("purge", owners=[salt_pseudonym("group")])["left"] == 0
        pool.check()


@pytest.mark.parametrize("shares", [False, True])
def test_purging_amid_traffic_keeps_the_pools_accounts(shares):
    from pools import Bench as Pool
    from pools import prompts

    from prefixctl.core.governing import DeviceSettings
    from prefixctl.core.tenancy import salt_pseudonym

    pool = Pool(80, DeviceSettings(pin_share=0.3, tenant_shares=shares, policy="lru_freq"))
    choose, salts = random.Random(4), ("shop", "bank", "post")
    for number, prompt in enumerate(prompts(9, 600)):
        salt = choose.choice(salts)
        if number % 40 == 0:
            pool.pin(f"{salt} {number}", prompt, salt=salt)
        pool.start(prompt, salt)
        while pool.running and (len(pool.running) > 3 or choose.random() < 0.5):
            pool.end(choose.choice(list(pool.running.values())))
        if number % 25 == 0:
            gone = choose.choice(salts)
            pool.ask("purge", owners=[salt_pseudonym(gone)])
            pool.check()
            left = pool.pool.governor.owners
            assert not sum(left.blocks[n] for n in left.numbers([salt_pseudonym(gone)]))
    for request in list(pool.running.values()):
        pool.end(request)
    pool.check()


def test_purging_unpins_what_is_pinned_for_the_tenant():
    from pools import BLOCK
    from pools import Bench as Pool

    from prefixctl.core.governing import DeviceSettings
    from prefixctl.core.tenancy import salt_pseudonym

    pool = Pool(60, DeviceSettings(pin_share=0.4))
    held: list[tuple[Wish, ...]] = []
    pool.desk._below = SimpleNamespace(hold=held.append, purge=lambda owners: (2, 1), state=dict)
    for salt in ("shop", "bank"):
        prefix = {"name": salt, "token_ids": list(range(4 * BLOCK)), "salt": salt}
        pool.desk.answer({"ask": "pin", "prefix": prefix})
        pool.run([*range(4 * BLOCK), 1], salt)
    assert [[w.name for w in wishes] for wishes in held] == [["shop"], ["shop", "bank"]]
    told = pool.desk.answer({"ask": "purge", "owners": [salt_pseudonym("shop")]})
    assert told == {"device": 4, "host": 2, "left": 1, "unknown": False}
    assert [w.name for w in held[-1]] == ["bank"]
    assert pool.desk.answer({"ask": "state"})["blocks"]["pinned"] == 4


def test_of_a_prefix_larger_than_host_memory_the_head_is_stored(tmp_path, rules):
    bench = Bench(tmp_path / "tier", rows=8)
    bench.store("too long", 12)
    assert in_host(bench, 12) == list(range(8))
    assert sorted(bench.tier.store.keys()) == [key(number) for number in range(8)]
    assert hits(bench, "again", 12) == [True] * 8 + [False] * 4
    bench.store("too long as well", 12, start=100)
    assert in_host(bench, 120) == list(range(100, 108))
    bench.manager.shutdown()


def test_without_a_thread_the_tier_gives_nothing_and_goes_on(tmp_path, rules, monkeypatch):
    bench = Bench(tmp_path / "tier", rows=8)
    bench.store("one", 4)

    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(bench.tier._writers, "submit", no_thread)
        bench.store("two", 4, start=50)
        below(bench).hold(wish(0))
    assert len(bench.files()) == 4
    bench.store("three", 4, start=70)
    assert len(bench.files()) == 8
    assert hits(bench, "again", 4) == [True] * 4
    bench.manager.shutdown()
