"""Copies between the KV tensors of a CPU-only host and its host tier.

vLLM's own worker needs a GPU's streams. Here both sides are memory of the same machine: a transfer
is one indexed copy for each tensor, done when it is submitted, between two model steps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """One tensor on both sides: blocks by number, and parts of chunks by (chunk, part)."""

    device: Any
    host: Any
    page_bytes: int


class HostCopyWorker(OffloadingWorker):  # type: ignore[misc]
    """One rank's transfers; each rank writes its own part of a chunk's row."""

    def __init__(self, kv_caches: Any, blocks_per_chunk: int, region: Any) -> None:
        """Take the views of both sides.

        Args:
            kv_caches: vLLM's `CanonicalKVCaches`.
            blocks_per_chunk: Device blocks in one chunk of host memory.
            region: vLLM's `SharedOffloadRegion` with this worker's rank; owned from here on.
        """
        self._region = region
        self._blocks_per_chunk = blocks_per_chunk
        self._groups = [[ref.tensor_idx for ref in refs] for refs in kv_caches.group_data_refs]
        self._pairs = [self._pair(tensor) for tensor in kv_caches.tensors]
        self._finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Device blocks into host chunks."""
        return self._transfer(job_id, src_spec, dst_spec, store=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Host chunks into device blocks."""
        return self._transfer(job_id, dst_spec, src_spec, store=False)

    def get_finished(self) -> list[TransferResult]:
        """All transfers since the last call: each was done when it was submitted."""
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Nothing is ever under way."""

    def shutdown(self) -> None:
        """Let go of the shared memory."""
        self._pairs.clear()
        if self._region is not None:
            self._region.cleanup()
            self._region = None

    def _pair(self, tensor: Any) -> _Pair:
        page = tensor.page_size_bytes
        device = tensor.tensor.view(torch.int8).view((-1, page))
        host = self._region.create_next_worker_view(page * self._blocks_per_chunk)
        parts = host.as_strided(
            (host.shape[0], self._blocks_per_chunk, page),
            (host.stride(0), page, 1),
            host.storage_offset(),
        )
        return _Pair(device=device, host=parts, page_bytes=page)

    def _transfer(self, job_id: int, device_spec: Any, host_spec: Any, *, store: bool) -> bool:
        started = time.perf_counter()
        copied = 0
        blocks_at = chunks_at = 0
        sizes, firsts = device_spec.group_sizes, device_spec.block_indices
        for tensors, size, first in zip(self._groups, sizes, firsts, strict=True):
            if size == 0:
                continue
            # The first and the last chunk of a group may be covered in part only.
            inside = first % self._blocks_per_chunk + np.arange(size)
            chunks = host_spec.block_ids[
                chunks_at : chunks_at + inside[-1] // self._blocks_per_chunk + 1
            ]
            blocks = torch.from_numpy(device_spec.block_ids[blocks_at : blocks_at + size]).long()
            chunk = torch.from_numpy(chunks[inside // self._blocks_per_chunk]).long()
            part = torch.from_numpy(inside % self._blocks_per_chunk)
            for index in tensors:
                pair = self._pairs[index]
                if store:
                    pair.host[chunk, part] = pair.device[blocks]
                else:
                    pair.device[blocks] = pair.host[chunk, part]
                copied += size * pair.page_bytes
            blocks_at += size
            chunks_at += len(chunks)
        if blocks_at != len(device_spec.block_ids) or chunks_at != len(host_spec.block_ids):
            raise ValueError("a transfer names more blocks than its groups")
        seconds = time.perf_counter() - started
        self._finished.append(
            TransferResult(job_id=job_id, success=True, transfer_size=copied, transfer_time=seconds)
        )
        return True
