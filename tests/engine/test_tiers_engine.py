"""Requests over the tiers without a model: resets, prefixes larger than host memory, purges."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tier_bench import Bench, hits, key
from tier_engine import Engine
from tiered import BLOCK

if TYPE_CHECKING:
    from vllm.v1.engine.core import EngineCore

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's, at import
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    from prefixctl.core.policy.tier import Rules
    from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy

    GovernedCachePolicy.rules = Rules()
    made = Engine(tmp_path / "tier")
    yield made
    made.manager.shutdown()


def prompt(blocks: int, first: int = 0) -> range:
    """Tokens of so many blocks, none of them another prompt's, and one more."""
    return range(first * 10_000, first * 10_000 + blocks * BLOCK + 1)


def decided(engine: Engine, request) -> int:
    """The tokens that a request finds, once all that comes up for it has come."""
    deadline = time.monotonic() + 20
    while (found := engine.found(request)) is None:
        assert time.monotonic() < deadline, "the request is never decided"
        engine.schedule()
    return found


def on_disk(bench: Bench, count: int) -> None:
    """A chain of so many blocks is on the disk, and none of it in host memory."""
    for start in range(0, count, 4):
        bench.store(f"part {start}", count, only=slice(start, start + 4))
    bench.primary.reset_cache()


def test_requests_store_and_load(engine):
    assert engine.run(prompt(4)) == 0
    assert len(engine.files()) == 4
    assert engine.run(prompt(4)) == 4 * BLOCK
    engine.connector.reset_cache()
    engine.settle()
    assert engine.run(prompt(4)) == 4 * BLOCK
    assert engine.tier.store.snapshot()["hits"] == 4


def test_a_reset_with_a_store_under_way_lets_nothing_come_up_over_it(engine):
    engine.run(prompt(2))
    engine.connector.reset_cache()
    engine.schedule()
    writing = engine.request(prompt(1, first=5))
    assert engine.found(writing) == 0
    engine.start(writing)  # the worker has put the store off
    engine.connector.reset_cache()
    reading = engine.request(prompt(2))
    found = engine.found(reading)
    meta = engine.schedule(work=False)
    engine.tier.drain_jobs()
    engine.work(meta)  # it is done now, over a row that was given up
    found = decided(engine, reading) if found is None else found
    engine.start(reading, found)
    engine.end(reading)
    engine.end(writing)
    engine.settle()
    assert engine.run(prompt(2)) == 2 * BLOCK, "the tier stays shut, or served another row"
    assert found in {0, 2 * BLOCK}
    assert not engine.primary.fenced


def test_a_reset_waits_for_every_rank_and_for_every_reset(engine):
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
        OffloadingWorkerMetadata,
    )

    def ended(*jobs: int) -> None:
        told = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(jobs, 1))
        engine.connector.update_connector_output(SimpleNamespace(kv_connector_worker_meta=told))

    jobs = engine.connector.scheduler._jobs
    for first in (0, 1):
        writing = engine.request(prompt(1, first=first))
        engine.found(writing)
        engine.start(writing)
        assert list(jobs) == [first]
        jobs[first].pending_count = 2
        engine.worker._unsubmitted_store_jobs.clear()  # the ranks are played below
        engine.connector.reset_cache()
    for job in (0, 1, 1, 0):
        assert engine.primary.fenced
        ended(job)
    assert not engine.primary.fenced


# ---- prefixes larger than host memory ----


@pytest.mark.parametrize("policy", ["lru", "lru_freq", "cost_aware"])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("count", [9, 12, 40])
def test_a_prefix_larger_than_host_memory_is_served_in_part(tmp_path, count, policy, shares):
    from prefixctl.core.policy.tier import Rules
    from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy

    GovernedCachePolicy.rules = Rules(policy=policy, shares=shares)
    bench = Bench(tmp_path / "tier")
    on_disk(bench, count)
    bench.store("others", 3, start=500)
    assert hits(bench, "reading", count) == [True] * 8 + [False] * (count - 8)
    loads = bench.tier.store.snapshot()["hits"]
    assert loads == 8, "blocks came up more than once"
    assert not bench.primary._policy._withdrawn
    bench.store("later", 8, start=600)
    bench.manager.shutdown()


def test_what_a_waiting_request_has_found_in_host_memory_stays_for_it(engine):
    on_disk(engine, 12)
    assert hits(engine, "first", 4) == [True] * 4
    assert hits(engine, "reading", 12) == [True] * 8 + [False] * 4
    assert engine.tier.store.snapshot()["hits"] == 8


def test_what_came_up_for_a_request_without_room_on_the_device_stays_for_it(engine):
    for number in range(2):
        assert engine.run(prompt(6, first=number)) == 0
    engine.connector.reset_cache()
    engine.schedule()
    waiting, other = (engine.request(prompt(6, first=number)) for number in range(2))
    for _ in range(5):
        first, second = engine.found(waiting), engine.found(other)
        engine.schedule()
        engine.tier.drain_jobs()
    assert (first, second) == (6 * BLOCK, 2 * BLOCK)
    assert engine.tier.store.snapshot()["hits"] == 8, "they push out each other's blocks"
    for request, found in ((waiting, first), (other, second)):
        engine.start(request, found)
        engine.end(request)
    engine.settle()


def test_what_a_running_request_stores_goes_before_what_another_one_waits_for(engine):
    on_disk(engine, 8)
    waiting = engine.context("waiting", 8)
    for _ in range(2):
        for number in range(8):
            engine.manager.lookup(key(number), waiting)
        engine.step()
        engine.tier.drain_jobs()
    policy = engine.primary.policy
    assert policy.has_claims("waiting")
    engine.store("running", 3, start=100)
    assert [number for number in range(8) if not policy.get(key(number))] == [5, 6, 7]
    engine.manager.on_request_finished(waiting)
    assert len(policy) == 8 and not policy._claimed and not policy._withdrawn


def test_a_request_that_runs_or_loads_claims_nothing_more(engine):
    assert engine.run(prompt(4)) == 0
    engine.connector.reset_cache()
    engine.schedule()
    request = engine.request(prompt(5))
    found = decided(engine, request)
    policy = engine.primary.policy
    assert found == 4 * BLOCK and policy.has_claims(request.request_id)
    engine.start(request, found)
    assert not policy.has_claims(request.request_id)
    engine.end(request)
    engine.settle()
    aside = engine.context("aside", 4)
    engine.primary.policy.claim("aside", list(policy._chunks))
    engine.primary.release_served({"aside": 1})
    assert not policy._claimed
    engine.manager.on_request_finished(aside)


def test_an_old_chunk_is_not_made_young_by_a_request_that_comes_near_it(tmp_path):
    from prefixctl.core.policy.tier import Rules
    from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy

    now = [0.0]
    before = GovernedCachePolicy.clock
    GovernedCachePolicy.rules = Rules(ttl_seconds=100.0)
    GovernedCachePolicy.clock = lambda: now[0]
    try:
        bench = Bench(tmp_path / "tier")
        bench.store("one", 6)
        for path in bench.files():
            path.unlink()
        now[0] = 60.0
        bench.store("two", 2, start=50)
        offered = [key(number) for number in range(6)]
        slots = [bench.primary.policy.get(each).chunk_id for each in offered]
        stamp = bench.primary.policy._blocks.stamp
        before_that = [stamp[slot] for slot in slots]
        context = bench.context("offers", 8)
        bench.manager.prepare_store([*offered, key(6), key(7)], context)
        assert [stamp[slot] for slot in slots] == before_that, "they moved in the order"
        now[0] = 101.0
        assert all(bench.primary.policy.is_expired(each) for each in offered)
        assert not bench.primary.policy.has_claims("offers")
    finally:
        GovernedCachePolicy.rules, GovernedCachePolicy.clock = Rules(), before


# ---- the order of blocks ----


@pytest.mark.parametrize("threads", [1, 4])
def test_blocks_of_a_job_are_stored_parents_first(tmp_path, threads):
    bench = Bench(tmp_path / "tier", rows=64, threads=threads)
    bench.store("one", 48)
    index = bench.tier.store._index
    gone = []
    while (entry := index.victim()) is not None:
        gone.append(entry.depth)
    assert gone == list(range(47, -1, -1)), "a block goes before what hangs on it"
    bench.manager.shutdown()


def test_a_block_that_does_not_get_in_breaks_off_only_what_hangs_on_it(tmp_path, monkeypatch):
    bench = Bench(tmp_path / "tier", rows=16)
    stock, results = bench.tier.store.put, []
    monkeypatch.setattr(
        bench.tier.store, "put", lambda place, row: place.key != key(2) and stock(place, row)
    )
    told = bench.tier.get_finished_jobs
    monkeypatch.setattr(
        bench.tier, "get_finished_jobs", lambda: results.extend(new := told()) or new
    )
    context = bench.context("two groups", 5)
    for number in range(3):
        context.set_offload_key_position(key(number, group=1), (number + 1) * BLOCK)
    keys = [*(key(n) for n in range(5)), *(key(n, group=1) for n in range(3))]
    output = bench.manager.prepare_store(keys, context)
    bench.manager.complete_store(set(output.keys_to_store), context)
    bench.manager.on_request_finished(context)
    bench.finish()
    assert set(bench.tier.store.keys()) == {key(0), key(1), *(key(n, group=1) for n in range(3))}
    assert [(r.success, r.transfer_bytes) for r in results] == [(False, 5 * Bench.ROW)]
    bench.manager.shutdown()


def test_the_order_of_keys_is_kept_up_key_by_key():
    from vllm.v1.kv_offload.base import ReqContext

    from prefixctl.vllm_plugin.tiers.origin import chain_of

    context = ReqContext(req_id="a")
    for number in range(4):
        context.set_offload_key_position(key(number), (number + 1) * BLOCK)
        context.set_offload_key_position(key(number, group=1), (number + 1) * 2 * BLOCK)
        parents = chain_of(context).parents
        assert parents[key(number)] == (key(number - 1) if number else b"", number)
        assert parents[key(number, group=1)] == (
            key(number - 1, group=1) if number else b"", number,
        )  # fmt: skip
    context.set_offload_key_position(key(90), 2 * BLOCK + 1)
    parents = chain_of(context).parents
    assert (parents[key(90)], parents[key(2)]) == ((key(1), 2), (key(90), 3))
    context.set_offload_key_position(key(4), 5 * BLOCK)
    assert chain_of(context).parents[key(4)] == (key(3), 5)


def test_keeping_up_a_long_chain_takes_one_look_at_each_key():
    from vllm.v1.kv_offload.base import ReqContext

    from prefixctl.vllm_plugin.tiers.origin import chain_of

    class Watched(dict):
        """A test double that counts what is read of it."""

        reads = 0

        def __reversed__(self):
            for each in super().__reversed__():
                Watched.reads += 1
                yield each

        def items(self):
            pytest.fail("all of it")

        __iter__ = keys = values = items

    context = ReqContext(req_id="a")
    context._offload_key_positions = Watched()
    for number in range(300):
        context.set_offload_key_position(key(number), (number + 1) * BLOCK)
        before = Watched.reads
        chain_of(context)
        assert Watched.reads - before == 1
    assert chain_of(context).parents[key(299)] == (key(298), 299)


# ---- a slow disk ----


def test_a_slow_disk_leaves_room_in_host_memory(tmp_path, monkeypatch):
    import threading

    bench = Bench(tmp_path / "tier", rows=16, threads=1)
    bench.store("one", 4)
    bench.primary.reset_cache()
    go_on = threading.Event()
    stock = bench.tier.store.put
    monkeypatch.setattr(
        bench.tier.store, "put", lambda place, row: go_on.wait(20) and stock(place, row)
    )
    for number in range(4):
        context = bench.context(f"flood {number}", 4, start=100 * (number + 1))
        keys = [key(100 * (number + 1) + at) for at in range(4)]
        output = bench.manager.prepare_store(keys, context)
        bench.manager.complete_store(set(output.keys_to_store), context)
        bench.manager.on_request_finished(context)
    assert bench.tier.bp_detector.waiting == 12
    context = bench.context("reading", 4)
    assert [bench.manager.lookup(key(n), context).name for n in range(4)] == ["HIT_PENDING"] * 4
    values = bench.manager.get_stats()._values
    dropped = values["vllm:kv_offload_tiering_backpressure_blocks_dropped"]
    assert dropped == {("1:NvmeTier",): 4}
    go_on.set()
    bench.finish()
    bench.manager.on_request_finished(context)
    assert bench.tier.bp_detector.waiting == 0
    assert len(bench.files()) == 16
    bench.store("later", 4, start=900)
    assert len(bench.files()) == 20
    bench.manager.shutdown()


# ---- requests that have ended ----


def test_a_load_that_fails_behind_an_aborted_request_leaves_nothing_behind(tmp_path):
    bench = Bench(tmp_path / "tier")
    bench.store("one", 2)
    bench.primary.reset_cache()
    for path in bench.files():
        path.write_bytes(b"")
    context = bench.context("aborted", 2)
    bench.manager.lookup(key(0), context)
    bench.step()
    bench.manager.on_request_finished(context)
    bench.finish()
    known = weakref.ref(context)
    del context
    gc.collect()
    assert known() is None, "something of an aborted request is kept"
    bench.manager.shutdown()


def test_a_request_that_has_ended_counts_as_left_until_its_last_blocks_are_stored(engine):
    from prefixctl.core.tenancy import salt_pseudonym
    from prefixctl.vllm_plugin.tiers.below import TiersBelow

    below = TiersBelow.of(engine.connector)
    request = engine.request(prompt(2), salt="shop")
    engine.found(request)
    engine.start(request)
    shop = [salt_pseudonym("shop")]
    engine.settle()
    assert below.purge(shop) == (2, 0), "a running one is the desk's to count"
    engine.end(request)
    assert below.purge(shop)[1] == 1
    assert below.purge([salt_pseudonym("bank")])[1] == 0
    engine.settle()
    assert below.purge(shop)[1] == 0


# ---- the weights ----


def core_of(connector) -> EngineCore:
    from vllm.v1.engine.core import EngineCore

    core = EngineCore.__new__(EngineCore)
    core.scheduler = SimpleNamespace(connector=connector)
    core.model_executor = SimpleNamespace(
        collective_rpc=lambda *_: ["done"], add_lora=lambda _: True, sleep=lambda _: None
    )
    core.pause_scheduler = lambda **_: None
    return core


@pytest.fixture
def watched():
    from vllm.v1.engine.core import EngineCore

    from prefixctl.vllm_plugin.tiers import updates

    stock = {name: getattr(EngineCore, name) for name in updates._REASONS}
    updates.watch()
    updates.watch()
    yield
    for name, function in stock.items():
        setattr(EngineCore, name, function)


@pytest.mark.parametrize(
    ("replace", "closes"),
    [
        (lambda core: core.collective_rpc("update_weights", None, (), {}), True),
        (lambda core: core.collective_rpc("reload_weights"), True),
        (lambda core: core.collective_rpc("a_method_of_a_worker_extension"), True),
        (lambda core: core.collective_rpc(lambda worker: None), True),
        (lambda core: core.collective_rpc("compute_weight_checksums"), False),
        (lambda core: core.collective_rpc("init_weight_transfer_engine", None, (), {}), False),
        (lambda core: core.sleep(2), True),
        (lambda core: core.sleep(level=2, mode="keep"), True),
        (lambda core: core.sleep(), False),
        (lambda core: core.set_weight_version("step-7"), True),
        (lambda core: core.add_lora(SimpleNamespace(lora_name="a", load_inplace=True)), False),
    ],
)
def test_weights_that_are_replaced_close_the_disk(engine, watched, replace, closes, caplog):
    import logging

    engine.run(prompt(3))
    engine.connector.reset_cache()
    engine.schedule()
    core = core_of(engine.connector)
    logging.getLogger("vllm").propagate = True
    replace(core)
    replace(core)
    engine.connector.reset_cache()
    engine.schedule()
    assert bool(engine.tier.closed) == engine.primary.fenced == closes
    said = [r for r in caplog.records if "neither serves nor stores" in r.getMessage()]
    assert len(said) == int(closes), "it is to be said once"
    assert engine.run(prompt(3)) == (0 if closes else 3 * BLOCK)
    engine.run(prompt(2, first=9))
    assert len(engine.files()) == (3 if closes else 5)
    found = engine.tier.store.snapshot()
    assert found["refused"]["weights_replaced"] == (5 if closes else 0)
    values = engine.tier.get_stats()._values
    assert values["prefixctl_tier_closed"] == {("nvme",): int(closes)}
    assert engine.run(prompt(2, first=9)) == 2 * BLOCK, "host memory goes on"


def test_a_load_that_was_on_its_way_when_the_weights_were_replaced_is_dropped(engine, watched):
    engine.run(prompt(2))
    engine.connector.reset_cache()
    engine.schedule()
    request = engine.request(prompt(2))
    assert engine.found(request) is None
    engine.tier.close_off("a test")
    engine.schedule()
    engine.tier.drain_jobs()
    engine.schedule()
    assert engine.found(request) == 0
    engine.start(request)
    engine.end(request)
    engine.settle()


def test_a_named_adapter_that_is_loaded_again_closes_the_disk(engine, watched):
    engine.connector._adapter = "sha256:named"
    core = core_of(engine.connector)
    core.add_lora(SimpleNamespace(lora_name="a", load_inplace=False))
    assert not engine.tier.closed
    core.add_lora(SimpleNamespace(lora_name="a", load_inplace=True))
    assert "adapter a" in engine.tier.closed


def test_vllm_still_converts_the_arguments_of_watched_calls(watched):
    from inspect import signature

    from vllm.lora.request import LoRARequest
    from vllm.v1.engine.core import EngineCore

    assert signature(EngineCore.add_lora).parameters["lora_request"].annotation is LoRARequest


# ---- what is refused ----


@pytest.mark.parametrize(
    ("backend", "nodes", "refused"),
    [("mp", 1, ""), ("uni", 1, ""), ("ray", 1, "executor 'ray'"), ("mp", 2, "2 nodes"),
     ("external_launcher", 1, "executor 'external_launcher'")],
)  # fmt: skip
def test_ranks_on_several_hosts_are_refused(backend, nodes, refused):
    from prefixctl.vllm_plugin.guard import UngovernableError
    from prefixctl.vllm_plugin.tiers.connector import GovernedConnector, refuse_several_hosts

    parallel = SimpleNamespace(distributed_executor_backend=backend, nnodes_within_dp=nodes)
    told = SimpleNamespace(parallel_config=parallel)
    if refused:
        with pytest.raises(UngovernableError, match=f"{refused}.*without `tiers:`"):
            GovernedConnector(told, None, None)
    else:
        refuse_several_hosts(parallel)


def test_stages_whose_parts_of_a_row_differ_are_refused():
    from prefixctl.vllm_plugin.guard import UngovernableError
    from prefixctl.vllm_plugin.tiers.region import refuse_uneven_stages

    refuse_uneven_stages(4096, 1, lambda _: pytest.fail("one stage asks nobody"))
    refuse_uneven_stages(4096, 2, lambda mine: [mine, mine])
    with pytest.raises(UngovernableError, match=r"4,096, 6,144 bytes a block.*VLLM_PP_LAYER"):
        refuse_uneven_stages(6144, 2, lambda mine: [4096, mine])


def test_a_worker_asks_the_other_stages_before_it_maps_anything(monkeypatch):
    from prefixctl.vllm_plugin.guard import UngovernableError
    from prefixctl.vllm_plugin.tiers import spec
    from prefixctl.vllm_plugin.tiers.region import refuse_uneven_stages

    monkeypatch.setattr(
        spec,
        "refuse_uneven_stages",
        lambda mine, stages: refuse_uneven_stages(mine, stages, lambda own: [own, own + 1]),
    )
    made = spec.GovernedTieringSpec.__new__(spec.GovernedTieringSpec)
    made._worker = None
    made.config = SimpleNamespace(worker_kv_bytes_per_block=64, parallel=SimpleNamespace(pp_size=2))
    with pytest.raises(UngovernableError, match="pipeline stages"):
        made.get_worker(None)


def test_stages_are_asked_over_vllms_own_group(monkeypatch):
    import torch.distributed as dist
    from vllm.distributed import parallel_state

    from prefixctl.vllm_plugin.tiers.region import gather_stages

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = SimpleNamespace(world_size=1, cpu_group=dist.group.WORLD)
        monkeypatch.setattr(parallel_state, "get_pp_group", lambda: group)
        assert gather_stages(4096) == [4096]
    finally:
        dist.destroy_process_group()


def test_a_worker_ends_quietly_when_the_name_of_its_region_is_gone(tmp_path, caplog, monkeypatch):
    import logging

    from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
    from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

    from prefixctl.vllm_plugin.tiers.spec import GovernedTieringSpec

    logging.getLogger("vllm").propagate = True
    for gone in (True, False):
        region = SharedOffloadRegion(f"quiet-{os.getpid()}-{gone}", 2, 0, 4096, 4096)
        worker = SimpleNamespace(_mmap_region=region)
        monkeypatch.setattr(TieringOffloadingSpec, "create_worker", lambda *_, w=worker: w)
        spec = GovernedTieringSpec.__new__(GovernedTieringSpec)
        assert spec.create_worker(None) is worker
        if gone:
            Path(region.mmap_path).unlink()
        region.cleanup()
        assert not Path(region.mmap_path).exists()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


# ---- pins of several groups ----


def test_pins_name_the_blocks_of_every_group():
    from prefixctl.core.pinbook import Wish
    from prefixctl.vllm_plugin.tiers.below import TiersBelow

    groups = (
        SimpleNamespace(group_idx=0, hashes_per_chunk=2, sliding_window_size_in_chunks=None),
        SimpleNamespace(group_idx=1, hashes_per_chunk=1, sliding_window_size_in_chunks=3),
    )
    scheduler = SimpleNamespace(
        manager=SimpleNamespace(primary_tier=None, secondary_tiers=[]),
        config=SimpleNamespace(kv_group_configs=groups),
    )
    wish = Wish(name="support@3", keys=tuple(key(n)[:-4] for n in range(7)))
    named = TiersBelow(scheduler)._keys(wish)
    assert named == [key(1), key(3), key(5), *(key(n, group=1) for n in (4, 5, 6))]


# ---- figures ----


def test_each_tier_counts_a_block_once_for_each_request(engine):
    engine.run(prompt(3))
    engine.primary.get_stats(), engine.tier.get_stats()
    engine.connector.reset_cache()
    engine.schedule()
    request = engine.request(prompt(5))
    for _ in range(50):
        if engine.found(request) is not None:
            break
        engine.schedule()
        engine.tier.drain_jobs()
    for _ in range(5):
        engine.found(request)
    host, disk = (tier.get_stats()._values for tier in (engine.primary, engine.tier))
    assert host["prefixctl_tier_hits"] == {("host",): 0}
    assert host["prefixctl_tier_misses"] == {("host", "absent"): 4, ("host", "expired"): 0}
    assert disk["prefixctl_tier_hits"] == {("nvme",): 3}
    assert disk["prefixctl_tier_misses"]["nvme", "absent"] == 1
    assert len(disk["prefixctl_tier_load_latency_seconds"][("nvme",)]) == 3
    engine.start(request, 3 * BLOCK)
    engine.end(request)
    engine.settle()
    assert engine.run(prompt(5)) == 5 * BLOCK
    host, disk = (tier.get_stats()._values for tier in (engine.primary, engine.tier))
    assert host["prefixctl_tier_hits"] == {("host",): 5}
    assert disk["prefixctl_tier_stored_blocks"] == {("nvme",): 2}
    assert len(disk["prefixctl_tier_store_latency_seconds"][("nvme",)]) == 2
    assert "prefixctl_tier_load_latency_seconds" not in disk


def test_every_series_that_is_filled_is_declared(engine):
    from prefixctl.vllm_plugin.tiers import metrics

    engine.run(prompt(3))
    engine.connector.reset_cache()
    engine.schedule()
    engine.run(prompt(3))
    declared = metrics.definitions()
    for tier in (engine.primary, engine.tier):
        for name, series in tier.get_stats()._values.items():
            if name.startswith("prefixctl_"):
                assert {len(labels) for labels in series} == {len(declared[name].labelnames)}
