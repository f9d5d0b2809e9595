"""Make prefixes resident on servers, and prove it by reading back cached tokens.

One request computes a prefix; a second one, which differs in every dynamic value, must then show
the whole expected hit. A prefix that the first request already finds whole needs no second. So a
run that was interrupted is resumed by running it again: what is resident costs one cached request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum

from prefixctl.core.blocks import expected_hit_tokens
from prefixctl.core.ports import ChatRequest, Engine
from prefixctl.core.prompt import Prompt
from prefixctl.core.usage import CacheState, CacheUse
from prefixctl.errors import DriftError, ExitCode, PrefixctlError
from prefixctl.ids import Salt
from prefixctl.prompts.render import probe_values, render
from prefixctl.prompts.target import Measurement, Target


class WarmStatus(StrEnum):
    """How one prefix stands on one rank of one server."""

    RESIDENT = "resident"
    NOT_RESIDENT = "not resident"
    TOO_SHORT = "too short"
    UNREPORTED = "unreported"
    DRIFT = "drift"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmItem:
    """One live version to warm, measured on the target."""

    prompt: Prompt
    version: int
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class SaltedNamespace:
    """A namespace to warm in: its name for people and its salt, None for requests without one."""

    label: str
    salt: Salt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmOutcome:
    """What became of one prefix on one rank.

    Attributes:
        prompt: The prompt's name.
        version: Its live version.
        server: Base address.
        rank: Data-parallel rank.
        namespace: Label of the namespace.
        status: See `WarmStatus`.
        expected_hit_tokens: What a user's request must show.
        cached_tokens: What the last request showed; None if the engine did not say.
        was_resident: Whether the prefix was there before.
        seconds: Time spent.
        message: What went wrong, if something did.
    """

    prompt: str
    version: int
    server: str
    rank: int
    namespace: str
    status: WarmStatus
    expected_hit_tokens: int
    cached_tokens: int | None = None
    was_resident: bool = False
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmReport:
    """All outcomes of a run, in the order of prompts, servers, ranks, namespaces."""

    outcomes: tuple[WarmOutcome, ...]
    seconds: float

    @property
    def exit_code(self) -> ExitCode:
        """0 if every prefix is resident or too short to be; else the worst cause."""
        causes = {
            WarmStatus.NOT_RESIDENT: ExitCode.FINDINGS,
            WarmStatus.UNREPORTED: ExitCode.FINDINGS,
            WarmStatus.FAILED: ExitCode.UNREACHABLE,
            WarmStatus.DRIFT: ExitCode.DRIFT,
        }
        return max((causes.get(o.status, ExitCode.OK) for o in self.outcomes), default=ExitCode.OK)


@dataclass(frozen=True, slots=True)
class _Job:
    item: WarmItem
    engine: Engine
    rank: int
    namespace: SaltedNamespace


def warm(
    items: Sequence[WarmItem],
    engines: Sequence[Engine],
    target: Target,
    namespaces: Sequence[SaltedNamespace],
    *,
    concurrency: int = 2,
    on_outcome: Callable[[WarmOutcome, int, int], None] = lambda *_: None,
) -> WarmReport:
    """Warm every prefix on every data-parallel rank of every server, in every namespace.

    A server that does not answer fails its own entries only.

    Args:
        items: Live versions.
        engines: One for each server.
        target: What the items were measured on.
        namespaces: At least one.
        concurrency: Requests in flight at most, over all servers.
        on_outcome: Called with each outcome, the number done and the number of all.
    """
    started = time.monotonic()
    jobs: list[_Job] = []
    outcomes: dict[int, WarmOutcome] = {}
    for engine in engines:
        try:
            ranks = engine.ranks()
        except PrefixctlError as exc:
            ranks, failure = 1, exc
            for item in items:
                for namespace in namespaces:
                    job = _Job(item, engine, 0, namespace)
                    outcomes[len(jobs)] = _failed(job, failure)
                    jobs.append(job)
            continue
        jobs += [_Job(i, engine, r, n) for i in items for r in range(ranks) for n in namespaces]
    finished = _run(jobs, dict(outcomes), target, concurrency)
    for done, (index, outcome) in enumerate(finished, start=1):
        outcomes[index] = outcome
        on_outcome(outcome, done, len(jobs))
    ordered = tuple(outcomes[i] for i in range(len(jobs)))
    return WarmReport(outcomes=ordered, seconds=time.monotonic() - started)


def _run(
    jobs: Sequence[_Job], failed: Mapping[int, WarmOutcome], target: Target, concurrency: int
) -> Iterator[tuple[int, WarmOutcome]]:
    yield from failed.items()
    cancelled = threading.Event()
    with ThreadPoolExecutor(max_workers=max(concurrency, 1)) as pool:
        pending = {
            pool.submit(_warm_one, job, target, cancelled): index
            for index, job in enumerate(jobs)
            if index not in failed
        }
        try:
            for future in as_completed(pending):
                yield pending[future], future.result()
        finally:
            cancelled.set()
            pool.shutdown(cancel_futures=True)


def _warm_one(job: _Job, target: Target, cancelled: threading.Event) -> WarmOutcome:
    if cancelled.is_set():
        return _outcome(job, WarmStatus.FAILED, message="interrupted")
    started = time.monotonic()
    try:
        first = _request(job, target, 0)
        _check_tokens(job, target, first)
        use, state = _send(job, target, first)
        was_resident = state is CacheState.FULL
        if state in {CacheState.MISS, CacheState.PARTIAL}:
            use, state = _send(job, target, _request(job, target, 1))
    except DriftError as exc:
        return _outcome(job, WarmStatus.DRIFT, message=str(exc))
    except PrefixctlError as exc:
        return _failed(job, exc)
    status = {
        CacheState.FULL: WarmStatus.RESIDENT,
        CacheState.TOO_SHORT: WarmStatus.TOO_SHORT,
        CacheState.UNREPORTED: WarmStatus.UNREPORTED,
    }.get(state, WarmStatus.NOT_RESIDENT)
    return _outcome(
        job,
        status,
        cached=use.cached_tokens,
        was_resident=was_resident,
        seconds=time.monotonic() - started,
        message=_explain(job, status, use),
    )


def _request(job: _Job, target: Target, index: int) -> ChatRequest:
    values = probe_values(job.item.prompt, index, target.settings.parameters)
    return render(job.item.prompt, values)


def _send(job: _Job, target: Target, request: ChatRequest) -> tuple[CacheUse, CacheState]:
    use = job.engine.complete(request, salt=job.namespace.salt, rank=job.rank).use
    shared = min(job.item.measurement.alignment.shared_tokens, use.prompt_tokens)
    expected = expected_hit_tokens(shared, use.prompt_tokens, target.material.block_size)
    return use, use.state(expected if job.item.measurement.governed else 0)


def _check_tokens(job: _Job, target: Target, request: ChatRequest) -> None:
    """The server must see the very tokens that the lock's key was made of."""
    local, served = target.tokenizer.token_ids(request), job.engine.tokenize(request)
    if local == served:
        return
    differing = next(
        (i for i, (a, b) in enumerate(zip(local, served, strict=False)) if a != b),
        min(len(local), len(served)),
    )
    raise DriftError(
        f"the server's tokens differ from target '{target.name}' from token {differing:,} on: "
        "another model, tokenizer or chat template"
    )


def _explain(job: _Job, status: WarmStatus, use: CacheUse) -> str:
    alignment = job.item.measurement.alignment
    if status is WarmStatus.TOO_SHORT:
        if alignment.expected_hit_tokens:
            return "below the length threshold (prefix_cache.min_tokens): not governed"
        return alignment.explain()
    if status is WarmStatus.UNREPORTED:
        return (
            "the server does not report cached tokens: start it with --enable-prompt-tokens-details"
        )
    if status is WarmStatus.NOT_RESIDENT:
        if not use.cached_tokens:
            return "nothing was reused: is prefix caching on, and do the block sizes agree?"
        return "partly resident: the cache is too small, or live traffic evicts it"
    return ""


def _failed(job: _Job, exc: PrefixctlError) -> WarmOutcome:
    return _outcome(job, WarmStatus.FAILED, message=str(exc))


def _outcome(
    job: _Job,
    status: WarmStatus,
    *,
    cached: int | None = None,
    was_resident: bool = False,
    seconds: float = 0.0,
    message: str = "",
) -> WarmOutcome:
    measured = job.item.measurement
    return WarmOutcome(
        prompt=job.item.prompt.name,
        version=job.item.version,
        server=job.engine.url,
        rank=job.rank,
        namespace=job.namespace.label,
        status=status,
        expected_hit_tokens=measured.alignment.expected_hit_tokens if measured.governed else 0,
        cached_tokens=cached,
        was_resident=was_resident,
        seconds=seconds,
        message=message,
    )
