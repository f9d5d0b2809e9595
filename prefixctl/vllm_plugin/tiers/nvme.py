"""The NVMe tier as vLLM's secondary tier: jobs for `BlockStore`, off the scheduler's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from vllm.logger import init_logger
from vllm.v1.kv_offload.base import LookupResult, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from prefixctl.core.tenancy import key_owners
from prefixctl.core.tiering import NvmeSettings
from prefixctl.tiers.counters import RefusalReason
from prefixctl.tiers.keyring import KeyRing
from prefixctl.tiers.material import Material
from prefixctl.tiers.serving import note_serving
from prefixctl.tiers.store import BlockStore
from prefixctl.tiers.write import Place
from prefixctl.vllm_plugin.tiers import metrics
from prefixctl.vllm_plugin.tiers.material import layout_facts
from prefixctl.vllm_plugin.tiers.origin import Chain, chain_of, origin_of
from prefixctl.vllm_plugin.tiers.pressure import WriteQueue
from prefixctl.vllm_plugin.tiers.settings import rules_of

logger = init_logger(__name__)

SPLIT_FROM = 16
"""Blocks of one load from which it is split among the threads."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One of vLLM's jobs under way, in one part or several."""

    job_id: int
    chain: Chain
    keys: list[bytes]
    load: bool
    parts: int = 1
    waiting: int = 0
    started: float = field(default_factory=time.perf_counter)
    good: set[bytes] = field(default_factory=set)


class NvmeTier(SecondaryTierManager):  # type: ignore[misc]
    """Blocks on a local disk that outlive the server.

    Stored rows hold the parts of all ranks: vLLM hands a row on only when every rank has written
    its part, and one file is there whole or not at all.

    Attributes:
        versions: The versions of blocks whose content is known here, whoever stores them.
        closed: Why nothing is served and nothing stored any more; empty if the tier is open.
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
        self._queue = backpressure_detector or WriteQueue()
        self._queue.rows = self._rows.nbytes // self._row_bytes
        self._store = open_store(offloading_spec, settings, self._row_bytes)
        self._readers = ThreadPoolExecutor(settings.threads, "prefixctl-tier-read")
        self._writers = ThreadPoolExecutor(settings.threads, "prefixctl-tier-write")
        self._threads = settings.threads
        self._running: set[Future[None]] = set()
        self._renewal: Future[None] | None = None
        self._finished: SimpleQueue[tuple[_Job, set[bytes]]] = SimpleQueue()
        self.versions: dict[bytes, str] = {}
        self.closed = ""
        self._reported = self._store.snapshot()
        logger.info(
            "prefixctl: NVMe tier in %s, %d blocks of %d bytes found",
            settings.path, self._reported["blocks"], self._row_bytes,
        )  # fmt: skip

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        """Whether a block may be there; what is not, or failed, is asked for once by a request."""
        missed = chain_of(req_context).missed
        if self.closed or key in missed:
            return LookupResult.MISS
        if self._store.contains(key):
            return LookupResult.HIT
        missed.add(key)
        return LookupResult.MISS

    def submit_store(self, job_metadata: Any) -> None:
        """Write rows to the disk, parents first: vLLM names them in no order."""
        chain, origin = chain_of(job_metadata.req_context), origin_of(job_metadata.req_context)
        job = self._job(job_metadata, load=False)
        chain.stored.update(job.keys)
        chain.missed.difference_update(job.keys)
        if self.closed:
            for _ in job.keys:
                self._store.counters.refused(RefusalReason.WEIGHTS_REPLACED)
            self._finished.put((job, set()))
            return
        work = []
        for key, chunk in zip(job.keys, job_metadata.chunk_ids, strict=True):
            parent, depth = chain.parents.get(key, (b"", 0))
            end = job_metadata.req_context.get_offload_key_position(key)
            owner, label = origin.owner_of(end), self.versions.get(key, origin.label)
            place = Place(key=key, parent=parent, depth=depth, owner=owner, label=label)
            work.append((place, self._row(chunk)))
        job.waiting = len(work)
        self._queue.waiting += job.waiting
        work.sort(key=lambda each: each[0].depth)
        self._submit(self._writers, job, lambda: self._put(work))

    def submit_load(self, job_metadata: Any) -> None:
        """Read rows from the disk, in several parts if there are many."""
        job = self._job(job_metadata, load=True)
        work = [
            (key, self._row(chunk))
            for key, chunk in zip(job.keys, job_metadata.chunk_ids, strict=True)
        ]
        job.parts = self._threads if len(work) >= SPLIT_FROM else 1
        for part in range(job.parts):
            self._submit(self._readers, job, lambda p=part: self._load(work[p :: job.parts]))

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
        chain: Chain = chain_of(req_context)
        used = [key for key in chain.parents if key not in chain.stored]
        if used and not self.closed:
            self._start(self._writers, lambda: self._store.use(used))

    @property
    def store(self) -> BlockStore:
        """Its blocks."""
        return self._store

    def renew_later(self) -> None:
        """Let a thread do `BlockStore.renew`, unless the last time still waits for the disk."""
        if not self.closed and (self._renewal is None or self._renewal.done()):
            self._renewal = self._start(self._writers, self._store.renew)

    def close_off(self, why: str) -> None:
        """Neither serve nor store any more, until the server starts again: see `updates`."""
        if not self.closed:
            self.closed = why
            logger.warning(
                "prefixctl: %s; the blocks in %s belong to the weights that this server started "
                "with, so the NVMe tier neither serves nor stores until the server is restarted",
                why, self._store.directory.path,
            )  # fmt: skip

    def drain_jobs(self) -> None:
        """Wait until nothing touches the host tier's memory."""
        wait(self._running)

    def shutdown(self) -> None:
        """Finish what is under way, and let go of the folder."""
        self._readers.shutdown(cancel_futures=False)
        self._writers.shutdown(cancel_futures=False)
        self._rows.release()
        self._store.close()

    def get_stats(self) -> Any:
        """What has been counted since the last call, for vLLM's own metrics page."""
        before, self._reported = self._reported, self._store.snapshot()
        latencies = self._store.counters.take_latencies()
        return metrics.stats(before, self._reported, latencies, closed=bool(self.closed))

    @classmethod
    def build_metric_definitions(cls, extra_config: Mapping[str, Any]) -> dict[str, Any]:
        """The series that `get_stats` fills."""
        del extra_config
        return metrics.definitions()

    def _job(self, metadata: Any, *, load: bool) -> _Job:
        keys = list(metadata.keys)
        return _Job(
            job_id=metadata.job_id, chain=chain_of(metadata.req_context), keys=keys, load=load
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

        if self._start(pool, run) is None:
            self._finished.put((job, set()))

    def _start(self, pool: ThreadPoolExecutor, work: Callable[[], None]) -> Future[None] | None:
        """Let a thread do it; None if there is none to be had."""
        try:
            future = pool.submit(work)
        except RuntimeError as exc:
            logger.warning("prefixctl: no thread for the NVMe tier: %s", exc)
            return None
        self._running.add(future)
        return future

    def _put(self, work: Sequence[tuple[Place, memoryview]]) -> set[bytes]:
        """Store blocks, each after what it hangs on; returns those that are on the disk."""
        # A block that does not get in is counted by the store; what hangs on it would never be
        # found without it.
        lost: set[bytes] = set()
        for place, row in work:
            if place.parent in lost or not self._store.put(place, row):
                lost.add(place.key)
        return {place.key for place, _ in work} - lost

    def _load(self, work: Collection[tuple[bytes, memoryview]]) -> set[bytes]:
        return {key for key, row in work if not self.closed and self._store.load(key, row) is None}

    def _result(self, job: _Job) -> JobResult:
        failed = [key for key in job.keys if key not in job.good]
        if job.load:
            job.chain.missed.update(failed)
        else:
            self._queue.waiting -= job.waiting
        return JobResult(
            job_id=job.job_id,
            success=not failed,
            successful_keys=tuple(job.good) if failed and job.good else None,
            transfer_time=time.perf_counter() - job.started,
            transfer_bytes=len(job.good) * self._row_bytes,
        )


def open_store(spec: Any, settings: NvmeSettings, row_bytes: int) -> BlockStore:
    """The store for the rows of a spec; errors as in `BlockStore`."""
    keys = None if settings.key_file is None else _keyring(spec, Path(settings.key_file))
    facts = {**spec.engine_facts, **layout_facts(spec.config), "row_bytes": row_bytes}
    path, material = Path(settings.path), Material(facts)
    store = BlockStore(
        path,
        material=material,
        block_bytes=row_bytes,
        max_bytes=settings.max_bytes,
        rules=rules_of(settings, spec.config),
        keyring=keys,
    )
    told = spec.tier_settings
    if told.configuration:
        note_serving(path, told.configuration, material.folder, model=told.model or "")
    return store


def _keyring(spec: Any, path: Path) -> KeyRing:
    """The keys of tenants and groups; without a secret a name stands for itself."""
    secret, told = spec.secret, spec.tier_settings
    if secret is None:
        return KeyRing(path)
    models = () if told.model is None else (told.model,)
    return KeyRing(
        path, names_of=lambda name: key_owners(secret, name, models=models, epoch=told.epoch)
    )
