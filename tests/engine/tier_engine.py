"""An engine without a model: requests over vLLM's scheduler of transfers and its worker's side."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from tier_bench import Bench
from tiered import BLOCK

BLOCKS = 64


class Region:
    """A test double for vLLM's shared region: the bench's rows."""

    def __init__(self, rows) -> None:
        self.rows = rows

    def create_next_worker_view(self, size: int):
        return self.rows[:, :size]

    def cleanup(self) -> None:
        self.rows = None


class Engine(Bench):
    """Requests are computed into device blocks; each block is filled with a digest of its hash.

    A step is vLLM's: schedule, then the worker submits what it has put off, loads, computes, puts
    off what is to be stored, and reports what has ended.
    """

    def __init__(self, folder: Path, rows: int = 8, **nvme_settings) -> None:
        import torch
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
            OffloadingWorkerMetadata,
        )
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import (
            OffloadingConnectorWorker,
        )
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_offload.base import (
            CanonicalKVCacheRef,
            CanonicalKVCaches,
            CanonicalKVCacheTensor,
        )

        from prefixctl.vllm_plugin.tiers.cpu_worker import HostCopyWorker

        super().__init__(folder, rows, **nvme_settings)
        function = get_hash_fn_by_name("sha256_cbor")
        init_none_hash(function)
        self.hasher = get_request_block_hasher(BLOCK, function)
        self.device = torch.zeros((BLOCKS, self.ROW), dtype=torch.int8)
        caches = CanonicalKVCaches(
            tensors=[CanonicalKVCacheTensor(tensor=self.device, page_size_bytes=self.ROW)],
            group_data_refs=[[CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=self.ROW)]],
        )
        worker = OffloadingConnectorWorker.__new__(OffloadingConnectorWorker)
        worker._is_store_writer = True
        worker._load_jobs, worker._unsubmitted_store_jobs = {}, []
        worker._connector_worker_meta = OffloadingWorkerMetadata()
        worker.worker = HostCopyWorker(caches, 1, Region(torch.from_numpy(self.memory)))
        self.worker = worker
        self._numbers, self._free = count(), list(range(1, BLOCKS))
        self._blocks: dict[str, list[int]] = {}
        self._ended: set[str] = set()

    def request(self, tokens, salt=None, **more):
        """A request that has come."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        request = Request(
            request_id=str(next(self._numbers)),
            prompt_token_ids=list(tokens),
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            cache_salt=salt,
            block_hasher=self.hasher,
            **more,
        )
        self.connector.on_new_request(request)
        return request

    def found(self, request) -> int | None:
        """Tokens that can be loaded for a request; None if that is still to be seen."""
        return self.connector.get_num_new_matched_tokens(request, 0)[0]

    def start(self, request, found: int = 0) -> None:
        """Schedule a request, with so many tokens from below, and do the step."""
        from vllm.v1.core.kv_cache_manager import KVCacheBlocks
        from vllm.v1.core.kv_cache_utils import KVCacheBlock

        number = len(request.prompt_token_ids) // BLOCK
        ids = [self._free.pop(0) for _ in range(number)]
        self._blocks[request.request_id] = ids
        blocks = KVCacheBlocks(([KVCacheBlock(i) for i in ids],))
        self.connector.update_state_after_alloc(request, blocks, found)
        if found:
            self.schedule()
        for block, name in list(zip(ids, request.block_hashes, strict=False))[found // BLOCK :]:
            self.device[block] = digest(name)
        request.num_computed_tokens = found
        self.schedule(request)
        request.num_computed_tokens = len(request.prompt_token_ids)

    def end(self, request) -> None:
        """A request is over; its last blocks are stored with the next step."""
        from vllm.v1.request import RequestStatus

        request.status = RequestStatus.FINISHED_STOPPED
        self.connector.request_finished(request, self._blocks[request.request_id])
        self._ended.add(request.request_id)
        self._free += self._blocks.pop(request.request_id)

    def schedule(self, request=None, *, work: bool = True):
        """One step, with or without a new request; without `work` the worker's part is left."""
        new, tokens = [], {}
        if request is not None:
            identity = request.request_id
            new.append(SimpleNamespace(req_id=identity, block_ids=(self._blocks[identity],)))
            tokens[identity] = len(request.prompt_token_ids) - request.num_computed_tokens
        ended, self._ended = self._ended, set()
        meta = self.connector.build_connector_meta(
            SimpleNamespace(
                scheduled_new_reqs=new,
                scheduled_cached_reqs=SimpleNamespace(
                    req_ids=[], new_block_ids=[], resumed_req_ids=set()
                ),
                num_scheduled_tokens=tokens,
                finished_req_ids=ended,
                preempted_req_ids=None,
                kv_cache_block_copies=None,
                kv_connector_block_state=None,
            )
        )
        if work:
            self.work(meta)
        return meta

    def work(self, meta) -> None:
        """The worker's part of a step."""
        self.worker.handle_preemptions(meta)
        self.worker.start_kv_transfers(meta)
        self.worker.prepare_store_kv(meta)
        self.worker.get_finished(set())
        told = self.worker.build_connector_worker_meta()
        self.connector.update_connector_output(SimpleNamespace(kv_connector_worker_meta=told))

    def settle(self) -> None:
        """Steps until nothing is to be done any more."""
        deadline = time.monotonic() + 20
        while self.connector.has_pending_push_work() or self._ended:
            assert time.monotonic() < deadline, "work never ended"
            self.schedule()
            time.sleep(0.002)

    def run(self, tokens, salt=None) -> int:
        """A request from start to end; tokens that came from below, all of them verified."""
        request = self.request(tokens, salt)
        deadline = time.monotonic() + 20
        while (found := self.found(request)) is None:
            assert time.monotonic() < deadline, "the lookup never ended"
            self.schedule()
            time.sleep(0.002)
        self.start(request, found)
        blocks = self._blocks[request.request_id]
        for block, name in zip(blocks, request.block_hashes, strict=False):
            assert (self.device[block] == digest(name)).all(), "wrong KV was served"
        self.end(request)
        self.settle()
        return found


def digest(name: bytes) -> int:
    return name[-1] % 127 + 1
