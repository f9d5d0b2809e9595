"""Host and NVMe tiers: vLLM's own managers over our parts, and real servers that are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from tier_bench import Bench, hits, key
from tiered import (
    BLOCK,
    ask_all,
    differs,
    kill,
    request_of,
    tiered,
    tiers_of,
    wait_for_files,
    whole,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's, at import
]


# ---- our worker, against a plain copy ----


@dataclass
class Region:
    """A test double for vLLM's shared region: one rank's part of plain memory."""

    rows: object
    at: int

    def create_next_worker_view(self, size: int):
        view = self.rows[:, self.at : self.at + size]
        self.at += size
        return view

    def cleanup(self) -> None:
        self.rows = None


@pytest.mark.parametrize("per_chunk", [1, 3])
def test_copies_equal_plain_ones_also_for_parts_of_chunks(per_chunk):
    import torch
    from vllm.v1.kv_offload.base import (
        CanonicalKVCacheRef,
        CanonicalKVCaches,
        CanonicalKVCacheTensor,
        GPULoadStoreSpec,
    )
    from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

    from prefixctl.vllm_plugin.tiers.cpu_worker import HostCopyWorker

    pages, blocks, chunks = [64, 96], 40, 20
    rows = torch.zeros((chunks, 7 + sum(pages) * per_chunk), dtype=torch.int8)
    device = [torch.randint(-99, 99, (blocks, page), dtype=torch.int8) for page in pages]
    tensors = [
        CanonicalKVCacheTensor(tensor=t, page_size_bytes=p)
        for t, p in zip(device, pages, strict=True)
    ]
    refs = [[CanonicalKVCacheRef(tensor_idx=i, page_size_bytes=p)] for i, p in enumerate(pages)]
    worker = HostCopyWorker(
        CanonicalKVCaches(tensors=tensors, group_data_refs=refs), per_chunk, Region(rows, 7)
    )
    first, count = 2 % per_chunk, 5
    whole = -(-(first + count) // per_chunk)
    ids = [[3, 9, 1, 30, 22], [8, 2, 5, 39, 17]]
    host = [[4, 11, 0, 7, 15][:whole], [1, 6, 13, 2, 19][:whole]]
    spec = GPULoadStoreSpec(ids[0] + ids[1], group_sizes=[count, count], block_indices=[first] * 2)
    before = [t.clone() for t in device]
    assert worker.submit_store(1, spec, CPULoadStoreSpec(host[0] + host[1]))
    for group, page in enumerate(pages):
        start = 7 + sum(pages[:group]) * per_chunk
        for i, block in enumerate(ids[group]):
            at = first + i
            chunk, part = host[group][at // per_chunk], at % per_chunk
            stored = rows[chunk, start + part * page : start + (part + 1) * page]
            assert torch.equal(stored, before[group][block])
        device[group].zero_()
    assert worker.submit_load(2, CPULoadStoreSpec(host[0] + host[1]), spec)
    for group, t in enumerate(device):
        for block in range(blocks):
            wanted = before[group][block] if block in ids[group] else torch.zeros(pages[group])
            assert torch.equal(t[block], wanted.to(torch.int8))
    assert [(r.job_id, r.success) for r in worker.get_finished()] == [(1, True), (2, True)]
    assert worker.get_finished() == []


# ---- our host policy, in vLLM's own manager ----


@pytest.mark.parametrize("policy", ["lru", "lru_freq", "cost_aware"])
@pytest.mark.parametrize("shares", [False, True])
def test_the_host_policy_keeps_the_managers_rules(policy, shares):
    from vllm.v1.kv_offload.base import LookupResult, ReqContext
    from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

    from prefixctl.core.policy.tier import Rules
    from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy

    GovernedCachePolicy.rules = Rules(policy=policy, shares=shares)
    manager = CPUOffloadingManager(
        24,
        cache_policy="GovernedCachePolicy",
        cache_policy_module_path="prefixctl.vllm_plugin.tiers.host_policy",
    )
    choose, reading = random.Random(5), []
    for number in range(800):
        chain = choose.randrange(12)
        keys = [key(chain * 100 + at) for at in range(choose.randrange(1, 7))]
        owner = {"prefixctl": {"owner": f"t{chain % 3}", "label": ""}}
        context = ReqContext(req_id=str(number), kv_transfer_params=owner)
        for at, each in enumerate(keys):
            context.set_offload_key_position(each, (at + 1) * BLOCK)
        manager.on_new_request(context)
        ready = [k for k in keys if manager.lookup(k, context) is LookupResult.HIT]
        if ready and choose.random() < 0.5:
            manager.prepare_load(ready, context)
            reading.append((ready, context))
        output = manager.prepare_store(keys, context)
        if output is not None and output.keys_to_store:
            assert not set(output.evicted_keys) & set(keys)
            for held, _ in reading:
                assert not set(output.evicted_keys) & set(held), "a chunk in use was evicted"
            manager.complete_store(output.keys_to_store, context, choose.random() < 0.9)
        while reading and choose.random() < 0.6:
            held, of = reading.pop(choose.randrange(len(reading)))
            manager.complete_load(held, of)
        manager.on_request_finished(context)
        stored = manager._policy._chunks
        assert len(stored) <= 24
        assert len({chunk.chunk_id for chunk in stored.values()}) == len(stored)
        idle = sum(chunk.ref_cnt == 0 for chunk in stored.values())
        assert idle == manager._num_evictable_cache_chunks == len(manager._policy._idle)


def test_pinned_chunks_stay_in_host_memory():
    from vllm.v1.kv_offload.cpu.policies.base import ChunkStatus

    from prefixctl.core.policy.tier import Rules
    from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy

    GovernedCachePolicy.rules = Rules(pinned_share=0.5)
    policy = GovernedCachePolicy(4)
    for number in range(4):
        chunk = ChunkStatus(number)
        chunk.ref_cnt = 0
        policy.insert(key(number), chunk)
    assert policy.pin([key(n) for n in range(3)]).refused == 1
    assert policy.evict(3, set()) is None
    assert policy.evict(2, {key(3)}) is None
    assert {k for k, _ in policy.evict(2, set())} == {key(2), key(3)}
    assert policy.unpin([key(0), key(1)]) == 2
    assert len(policy.evict(2, set())) == 2


# ---- our NVMe tier, in vLLM's own manager ----


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    from prefixctl.core.policy.tier import Rules
    from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy

    GovernedCachePolicy.rules = Rules()
    made = Bench(tmp_path / "tier")
    yield made
    made.manager.shutdown()


def test_blocks_go_down_and_come_up_again(bench):
    bench.store("one", 6)
    assert len(bench.files()) == 6
    bench.primary.reset_cache()
    bench.memory[:] = 0
    assert hits(bench, "two", 7) == [True] * 6 + [False]
    assert bench.tier._store.snapshot()["hits"] == 6


@pytest.mark.parametrize("threads", [1, 4])
def test_a_block_that_is_gone_between_lookup_and_load_is_a_miss(tmp_path, threads):
    bench = Bench(tmp_path / "tier", rows=32, threads=threads)
    bench.store("one", 20)
    bench.primary.reset_cache()
    bench.files()[12].unlink()
    assert hits(bench, "two", 20) == [True] * 12 + [False] * 8
    assert bench.tier._store.snapshot()["misses"]["absent"] >= 1
    bench.store("three", 20)
    assert len(bench.files()) == 20
    bench.manager.shutdown()


def test_a_damaged_block_ends_the_hit_and_nothing_waits_for_ever(bench):
    bench.store("one", 6)
    bench.primary.reset_cache()
    data = bytearray(bench.files()[3].read_bytes())
    data[-1] ^= 1
    bench.files()[3].write_bytes(data)
    assert hits(bench, "two", 6) == [True] * 3 + [False] * 3
    assert bench.tier._store.snapshot()["misses"]["checksum"] == 1


def test_too_many_open_files_is_a_miss_for_one_request_only(bench, monkeypatch):
    bench.store("one", 4)
    bench.primary.reset_cache()
    with monkeypatch.context() as broken:
        import errno

        def no_more(*_):
            raise OSError(errno.EMFILE, "Too many open files")

        broken.setattr("prefixctl.tiers.read.os.open", no_more)
        assert hits(bench, "two", 4) == [False] * 4
    assert hits(bench, "three", 4) == [True] * 4


def test_a_use_on_the_device_counts_on_the_disk(bench):
    bench.store("one", 4)
    entry = bench.tier._store._index.entries[key(0)]
    entry.used = 1.0
    context = bench.context("two", 4)
    bench.manager.on_request_finished(context)
    bench.finish()
    bench.tier.drain_jobs()
    assert entry.used > 1.0


def test_what_clients_say_of_owners_is_dropped_and_the_gateways_ticket_counts():
    from prefixctl.core.tenancy import Secret
    from prefixctl.core.ticket import TICKET_ARGUMENT, Ticket
    from prefixctl.ids import Salt
    from prefixctl.tiers.block import NO_OWNER, owner_tag
    from prefixctl.vllm_plugin.tiers.origin import name_origin, origin_of

    secret = Secret(b"0123456789abcdef")
    ticket = Ticket(tenant="t1", salt=Salt("s"), group_salt=Salt("g"), prefix="support@3")

    def origin(salt, arguments):
        request = SimpleNamespace(
            sampling_params=SimpleNamespace(extra_args=arguments),
            cache_salt=salt,
            kv_transfer_params={"prefixctl": {"owner": "bank", "label": "x"}, "other": 1},
        )
        params = name_origin(request, secret)
        assert params["other"] == 1
        return origin_of(SimpleNamespace(kv_transfer_params=params))

    signed = origin("s", {TICKET_ARGUMENT: ticket.sign(secret)})
    assert (signed.owner, signed.label) == (owner_tag("t1"), "support@3")
    forged = origin("s", {TICKET_ARGUMENT: ticket.sign(Secret(b"another-secret-of-16"))})
    assert forged.label == ""
    assert forged.owner not in {owner_tag("t1"), owner_tag("bank"), NO_OWNER}
    assert origin(None, None).owner == NO_OWNER


def test_blocks_ahead_of_the_tenants_salt_are_the_groups():
    from prefixctl.core.tenancy import Secret, salt_pseudonym
    from prefixctl.core.ticket import TICKET_ARGUMENT, Ticket
    from prefixctl.ids import Salt
    from prefixctl.tiers.block import owner_tag
    from prefixctl.vllm_plugin.sharing import PublicPrefix, Share
    from prefixctl.vllm_plugin.tiers.origin import name_origin, origin_of

    secret = Secret(b"0123456789abcdef")
    ticket = Ticket(tenant="t1", salt=Salt("s"), group_salt=Salt("g"))
    request = SimpleNamespace(
        sampling_params=SimpleNamespace(extra_args={TICKET_ARGUMENT: ticket.sign(secret)}),
        cache_salt="s",
        kv_transfer_params=None,
        prefixctl_share=Share(
            ticket=ticket, prefix=PublicPrefix(name="support@3", token_ids=[1] * 64), boundary=64
        ),
    )
    origin = origin_of(SimpleNamespace(kv_transfer_params=name_origin(request, secret)))
    group, tenant = owner_tag(salt_pseudonym("g")), owner_tag("t1")
    assert [origin.owner_of(end) for end in (32, 64, 65, 96, None)] == [
        group, group, tenant, tenant, tenant,
    ]  # fmt: skip
    assert origin.label == "support@3", "the content says so where the client named no key"


def test_a_client_that_says_nothing_but_an_owner_gets_none():
    from prefixctl.core.tenancy import Secret
    from prefixctl.tiers.block import NO_OWNER
    from prefixctl.vllm_plugin.tiers.connector import GovernedConnector
    from prefixctl.vllm_plugin.tiers.origin import origin_of

    request = SimpleNamespace(
        sampling_params=None, cache_salt=None, lora_request=None,
        kv_transfer_params={"prefixctl": {"owner": "bank", "label": "support@3"}},
    )  # fmt: skip
    seen = []
    connector = GovernedConnector.__new__(GovernedConnector)
    connector._secret = Secret(b"0123456789abcdef")
    connector._adapter, connector._adapters = None, {}
    connector.connector_scheduler = SimpleNamespace(on_new_request=seen.append)
    connector.on_new_request(request)
    assert seen == [request]
    assert origin_of(request).owner == NO_OWNER
    assert request.kv_transfer_params is None


# ---- real servers ----


def test_after_a_crash_prefixes_come_from_the_disk_and_outputs_are_equal(model_folder, tmp_path):
    config = tiers_of(model_folder, tmp_path)
    requests = [request_of(seed, 200) for seed in range(12)]
    with tiered(config, tmp_path / "first.log") as (engine, server):
        cold = ask_all(engine, requests)
        wanted = sum(c.use.prompt_tokens // BLOCK for c in cold)
        wait_for_files(tmp_path / "tier", wanted)
        kill(server)
    assert all(c.use.cached_tokens == 0 for c in cold)
    assert not list(Path("/dev/shm").glob("vllm_offload_*")), "a crash leaves host memory behind"
    with tiered(config, tmp_path / "second.log") as (engine, _):
        warm = ask_all(engine, requests)
        assert whole(warm)
        assert not any(differs(a, b) for a, b in zip(cold, warm, strict=True))
        files = sorted((tmp_path / "tier").rglob("*.kv"))
        choose = random.Random(3)
        for path in files:
            data = bytearray(path.read_bytes())
            data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
            path.write_bytes(data)
        damaged = ask_all(engine, requests)
        assert not any(differs(a, b) for a, b in zip(cold, damaged, strict=True))
        time.sleep(1)
        ask_all(engine, requests[:1])
        page = engine._get("/metrics").decode()
    lines = [line for line in page.splitlines() if line.startswith("prefixctl_tier_misses_total")]
    checksum = next(float(line.split()[-1]) for line in lines if 'cause="checksum"' in line)
    assert checksum > 20


def test_two_ranks_store_one_row_and_find_it_again(model_folder, tmp_path):
    config = tiers_of(
        model_folder,
        tmp_path,
        tensor_parallel_size=2,
        environment={"VLLM_CPU_OMP_THREADS_BIND": "0|1"},
    )
    requests = [request_of(seed, 200) for seed in range(3)]
    with tiered(config, tmp_path / "first.log") as (engine, server):
        cold = ask_all(engine, requests)
        wait_for_files(tmp_path / "tier", sum(c.use.prompt_tokens // BLOCK for c in cold))
        kill(server)
    with tiered(config, tmp_path / "second.log") as (engine, _):
        warm = ask_all(engine, requests)
    assert whole(warm)
    assert not any(differs(a, b) for a, b in zip(cold, warm, strict=True))
