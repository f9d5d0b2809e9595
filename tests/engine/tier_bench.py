"""vLLM's tiering manager over our tiers, without a model."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiered import BLOCK


def key(number: int, group: int = 0) -> bytes:
    return number.to_bytes(32, "big") + group.to_bytes(4, "big")


class Bench:
    """vLLM's tiering manager over our NVMe tier; rows of plain memory in place of a region."""

    ROW = 4096

    def __init__(self, folder: Path, rows: int = 8, threads: int = 2, **nvme_settings) -> None:
        import numpy as np
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
        from vllm.v1.kv_offload.tiering.manager import (
            CPUPrimaryTierOffloadingManager,
            TieringOffloadingManager,
        )

        from prefixctl.core.tiering import NvmeSettings, TierSettings
        from prefixctl.engine.tiers import connector
        from prefixctl.vllm_plugin.tiers.host import GovernedHostTier

        self.memory = np.zeros((rows, self.ROW), dtype=np.int8)
        region = SimpleNamespace(
            create_kv_memoryview=lambda: memoryview(self.memory), cleanup=lambda: None
        )
        self.primary = CPUPrimaryTierOffloadingManager(
            num_chunks=rows,
            mmap_region=region,
            cache_policy="GovernedCachePolicy",
            cache_policy_module_path="prefixctl.vllm_plugin.tiers.host_policy",
        )
        GovernedHostTier.adopt(self.primary)
        nvme = NvmeSettings(
            **{"path": str(folder), "max_bytes": 2**20, "threads": threads} | nvme_settings
        )
        groups = (SimpleNamespace(group_id=0, tokens_per_block=BLOCK, layer_names=("a",)),)
        parallel = SimpleNamespace(tp_size=1, pp_size=1, pcp_size=1, dcp_size=1)
        config = SimpleNamespace(
            groups=groups,
            parallel=parallel,
            cache=SimpleNamespace(tokens_per_hash=BLOCK, blocks_per_chunk=1),
            worker_kv_bytes_per_block=self.ROW,
            replicated_layout=False,
            canonical_layout=False,
            kv_cache_layout=None,
        )
        spec = SimpleNamespace(
            tier_settings=TierSettings(host_bytes=1, nvme=nvme),
            engine_facts={"model": "test"},
            secret=None,
            config=config,
        )
        told = connector(spec.tier_settings)["kv_connector_extra_config"]
        self.tier = SecondaryTierFactory.create_secondary_tier(
            told["secondary_tiers"][0], self.primary.get_kv_memoryview(), spec
        )
        self.manager = TieringOffloadingManager(self.primary, [self.tier])
        self.folder = folder
        self.connector = connector_over(self.manager, config)

    def context(self, name: str, count: int, start: int = 0, owner: str | None = None):
        from vllm.v1.kv_offload.base import ReqContext

        said = None if owner is None else {"prefixctl": {"owner": owner, "label": ""}}
        context = ReqContext(req_id=name, kv_transfer_params=said)
        for number in range(count):
            context.set_offload_key_position(key(start + number), (number + 1) * BLOCK)
        self.manager.on_new_request(context)
        return context

    def step(self) -> None:
        from vllm.v1.kv_offload.base import ScheduleEndContext

        self.manager.on_schedule_end(ScheduleEndContext(new_req_ids=(), preempted_req_ids=()))

    def finish(self) -> None:
        deadline = time.monotonic() + 20
        while self.manager.has_pending_work():
            assert time.monotonic() < deadline, "a job never ended"
            self.step()
            time.sleep(0.005)

    def store(
        self,
        name: str,
        count: int,
        start: int = 0,
        owner: str | None = None,
        only: slice = slice(None),
    ) -> None:
        """A request computes blocks, or a part of them, each filled with its number plus one."""
        context = self.context(name, count, start, owner)
        keys = [key(start + number) for number in range(count)][only]
        output = self.manager.prepare_store(keys, context)
        for stored, chunk in zip(output.keys_to_store, output.store_spec.chunk_ids, strict=True):
            self.memory[chunk] = (int.from_bytes(stored[:32], "big") + 1) % 128
        # A set, as from vLLM's scheduler.
        self.manager.complete_store(set(output.keys_to_store), context)
        self.manager.on_request_finished(context)
        self.finish()

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.kv"), key=lambda p: p.name)


def connector_over(manager, config):
    """Our connector over vLLM's scheduler of transfers, with one group of full attention."""
    import torch
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
        OffloadingConnectorScheduler,
    )
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.kv_offload.base import OffloadingKVEventsConfig

    from prefixctl.core.tenancy import Secret
    from prefixctl.vllm_plugin.tiers.connector import GovernedConnector

    attention = FullAttentionSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    layers = [KVCacheGroupSpec(["a"], attention)]
    cache = KVCacheConfig(num_blocks=64, kv_cache_tensors=[], kv_cache_groups=layers)
    spec = SimpleNamespace(
        config=config,
        blocks_per_chunk=1,
        tokens_per_hash=BLOCK,
        tokens_per_block=(BLOCK,),
        offload_prompt_only=False,
        replicated_layout=False,
        kv_events_config=OffloadingKVEventsConfig(
            enable_kv_cache_events=False, self_describing_kv_events=False
        ),
        get_manager=lambda: manager,
    )
    vllm = SimpleNamespace(
        cache_config=SimpleNamespace(
            prefix_cache_retention_interval=None, enable_prefix_caching=True
        ),
        speculative_config=None,
        parallel_config=SimpleNamespace(world_size=1, decode_context_parallel_size=1),
    )
    connector = GovernedConnector.__new__(GovernedConnector)
    connector._secret = Secret(b"a secret of tests only")
    connector._adapter, connector._adapters = None, {}
    connector._stale, connector._replaced = Counter(), False
    connector._kv_cache_config = cache
    connector.connector_scheduler = OffloadingConnectorScheduler(spec, vllm, cache)
    return connector


def hits(bench: Bench, name: str, count: int) -> list[bool]:
    """Look a chain up until all is decided, as the scheduler does; what could be loaded."""
    from vllm.v1.kv_offload.base import LookupResult

    context = bench.context(name, count)
    for _ in range(400):
        results = []
        for number in range(count):
            results.append(bench.manager.lookup(key(number), context))
            if results[-1] is LookupResult.MISS:
                break
        bench.step()
        if not any(r in {LookupResult.RETRY, LookupResult.HIT_PENDING} for r in results):
            break
        time.sleep(0.005)
    else:
        pytest.fail("the lookup never ended")
    found = [r is LookupResult.HIT for r in results] + [False] * (count - len(results))
    for number in range(sum(found)):
        chunk = bench.primary._policy.get(key(number)).chunk_id
        assert (bench.memory[chunk] == (number + 1) % 128).all(), "a wrong row"
    bench.manager.on_request_finished(context)
    bench.finish()
    return found
