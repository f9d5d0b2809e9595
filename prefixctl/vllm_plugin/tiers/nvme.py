"""The NVMe tier as vLLM's secondary tier: jobs for `BlockStore`, off the scheduler's thread."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import LookupResult, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from prefixctl.core.policy.make import depth_cost
from prefixctl.core.tenancy import key_owners
from prefixctl.core.tiering import NvmeSettings
from prefixctl.tiers.index import Rules
from prefixctl.tiers.keyring import KeyRing
from prefixctl.tiers.material import Material
from prefixctl.tiers.store import BlockStore
from prefixctl.tiers.write import Place
from prefixctl.vllm_plugin.tiers import metrics
from prefixctl.vllm_plugin.tiers.material import layout_facts
from prefixctl.vllm_plugin.tiers.origin import Chain, chain_of, origin_of

logger = init_logger(__name__)

SPLIT_FROM = 16
"""Blocks of one load from which it is split among the threads."""
stores: list[BlockStore] = []
"""The stores that this process has opened, for whoever reports on them."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One of vLLM's jobs under way, in one part or several."""

    job_id: int
    request: str
    keys: list[bytes]
    load: bool
    parts: int = 1
    started: float = field(default_factory=time.perf_counter)
    good: set[bytes] = field(default_factory=set)


class NvmeTier(SecondaryTierManager):  # type: ignore[misc]
    """Blocks on a local disk that outlive the server.

    Stored rows hold the parts of all ranks: vLLM hands a row on only when every rank has written
    its part, and one file is there whole or not at all.

    Attributes:
        versions: The versions of blocks whose content is known here, whoever stores them.
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
    ) -> None:
        """Open the store; the settings are the spec's own."""
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        settings: NvmeSettings = offloading_spec.tier_settings.nvme
        self._row_bytes = self.block_size_bytes
        self._rows = primary_kv_view.cast("B")
        self._store = open_store(offloading_spec, settings, self._row_bytes)
        stores.append(self._store)
        self._readers = ThreadPoolExecutor(settings.threads, "prefixctl-tier-read")
        self._writers = ThreadPoolExecutor(settings.threads, "prefixctl-tier-write")
        self._threads = settings.threads
        self._running: set[Future[None]] = set()
        self._renewal: Future[None] | None = None
        self._finished: SimpleQueue[tuple[_Job, set[bytes]]] = SimpleQueue()
        self._failed: dict[str, set[bytes]] = {}
        self.versions: dict[bytes, str] = {}
        self._reported = self._store.snapshot()
        logger.info(
            "prefixctl: NVMe tier in %s, %d blocks of %d bytes found",
            settings.path, self._reported["blocks"], self._row_bytes,
        )  # fmt: skip

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        """Whether a block may be there. What failed once is not tried again for this request."""
        if key in self._failed.get(req_context.req_id, ()):
            return LookupResult.MISS
        return LookupResult.HIT if self._store.contains(key) else LookupResult.MISS

    def submit_store(self, job_metadata: Any) -> None:
        """Write rows to the disk."""
        chain, origin = chain_of(job_metadata.req_context), origin_of(job_metadata.req_context)
        keys = list(job_metadata.keys)
        chain.stored.update(keys)
        places = []
        for key in keys:
            parent, depth = chain.parents.get(key, (b"", 0))
            end = job_metadata.req_context.get_offload_key_position(key)
            owner, label = origin.owner_of(end), self.versions.get(key, origin.label)
            places.append(Place(key=key, parent=parent, depth=depth, owner=owner, label=label))
        job = self._job(job_metadata, load=False)
        rows = [self._row(chunk) for chunk in job_metadata.chunk_ids]
        self._submit(self._writers, job, lambda: self._put(job, places, rows))

    def submit_load(self, job_metadata: Any) -> None:
        """Read rows from the disk, in several parts if there are many."""
        job = self._job(job_metadata, load=True)
        work = [
            (key, self._row(chunk))
            for key, chunk in zip(job.keys, job_metadata.chunk_ids, strict=True)
        ]
        job.parts = self._threads if len(work) >= SPLIT_FROM else 1
        for part in range(job.parts):
            self._submit(self._readers, job, lambda p=part: self._load(job, work[p :: job.parts]))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Jobs that have ended since the last call."""
        results = []
        while True:
            try:
                job, good = self._finished.get_nowait()
            except Empty:
                break
            job.good |= good
            job.parts -= 1
            if not job.parts:
                results.append(self._result(job))
        self._running = {future for future in self._running if not future.done()}
        return results

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:  # noqa: ARG002
        """Blocks come one by one as they are computed."""
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        """What the request used and has not brought itself was used here too, wherever it lay."""
        self._failed.pop(req_context.req_id, None)
        chain: Chain = chain_of(req_context)
        used = [key for key in chain.parents if key not in chain.stored]
        if used:
            self._running.add(self._writers.submit(self._store.use, used))

    @property
    def store(self) -> BlockStore:
        """Its blocks."""
        return self._store

    def renew_later(self) -> None:
        """Let a thread do `BlockStore.renew`, unless the last time still waits for the disk."""
        if self._renewal is None or self._renewal.done():
            self._renewal = self._writers.submit(self._store.renew)
            self._running.add(self._renewal)

    def drain_jobs(self) -> None:
        """Wait until nothing touches the host tier's memory."""
        wait(self._running)

    def shutdown(self) -> None:
        """Finish what is under way, and let go of the folder."""
        self._readers.shutdown(cancel_futures=False)
        self._writers.shutdown(cancel_futures=False)
        self._rows.release()
        if self._store in stores:
            stores.remove(self._store)
            self._store.close()

    def get_stats(self) -> Any:
        """What has been counted since the last call, for vLLM's own metrics page."""
        before, self._reported = self._reported, self._store.snapshot()
        return metrics.stats(before, self._reported)

    @classmethod
    def build_metric_definitions(cls, extra_config: Mapping[str, Any]) -> dict[str, Any]:
        """The series that `get_stats` fills."""
        del extra_config
        return metrics.definitions()

    def _job(self, metadata: Any, *, load: bool) -> _Job:
        keys = list(metadata.keys)
        return _Job(
            job_id=metadata.job_id, request=metadata.req_context.req_id, keys=keys, load=load
        )

    def _row(self, chunk: Any) -> memoryview:
        at = int(chunk) * self._row_bytes
        return self._rows[at : at + self._row_bytes]

    def _submit(self, pool: ThreadPoolExecutor, job: _Job, work: Any) -> None:
        def run() -> None:
            good: set[bytes] = set()
            try:
                good = work()
            except Exception:
                logger.exception("prefixctl: a job of the NVMe tier failed")
            finally:
                self._finished.put((job, good))

        self._running.add(pool.submit(run))

    def _put(self, job: _Job, places: list[Place], rows: list[memoryview]) -> set[bytes]:
        # A block that does not get in is counted by the store; the rest of its chain would never
        # be found without it.
        for place, row in zip(places, rows, strict=True):
            if not self._store.put(place, row):
                break
        return set(job.keys)

    def _load(self, job: _Job, work: Collection[tuple[bytes, memoryview]]) -> set[bytes]:
        del job
        return {key for key, row in work if self._store.load(key, row) is None}

    def _result(self, job: _Job) -> JobResult:
        failed = [key for key in job.keys if key not in job.good]
        if failed and job.load:
            self._failed.setdefault(job.request, set()).update(failed)
        return JobResult(
            job_id=job.job_id,
            success=not failed,
            successful_keys=tuple(job.good) if failed and job.good else None,
            transfer_time=time.perf_counter() - job.started,
            transfer_bytes=len(job.good) * self._row_bytes,
        )


def snapshot() -> list[dict[str, Any]]:
    """The counters and the occupancy of every store that this process has opened."""
    return [store.snapshot() for store in stores]


def open_store(spec: Any, settings: NvmeSettings, row_bytes: int) -> BlockStore:
    """The store for the rows of a spec; errors as in `BlockStore`."""
    keys = None if settings.key_file is None else _keyring(spec, Path(settings.key_file))
    facts = {**spec.engine_facts, **layout_facts(spec.config), "row_bytes": row_bytes}
    tokens = max(group.tokens_per_block for group in spec.config.groups)
    return BlockStore(
        Path(settings.path),
        material=Material(facts),
        block_bytes=row_bytes,
        max_bytes=settings.max_bytes,
        rules=Rules(
            policy=settings.policy,
            depth_cost=depth_cost(tokens * spec.config.cache.blocks_per_chunk),
            ttl_seconds=settings.ttl_seconds,
            shares=settings.tenant_shares,
            pinned_share=settings.pin_share,
        ),
        keyring=keys,
    )


def _keyring(spec: Any, path: Path) -> KeyRing:
    """The keys of tenants and groups; without a secret a name stands for itself."""
    secret, told = spec.secret, spec.tier_settings
    if secret is None:
        return KeyRing(path)
    models = () if told.model is None else (told.model,)
    return KeyRing(
        path, names_of=lambda name: key_owners(secret, name, models=models, epoch=told.epoch)
    )
