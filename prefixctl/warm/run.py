"""Make prefixes resident on servers, and prove it by reading back cached tokens.

One request computes a prefix; a second one, which differs in every dynamic value, must then show
the whole expected hit. A prefix that the first request already finds whole needs no second. So a
run that was interrupted is resumed by running it again: what is resident costs one cached request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum

from prefixctl.core.blocks import expected_hit_tokens
from prefixctl.core.ports import ChatRequest, Engine, Lease
from prefixctl.core.prompt import Prompt
from prefixctl.core.tenancy import SaltedNamespace
from prefixctl.core.usage import CacheState, CacheUse
from prefixctl.errors import DriftError, ExitCode, PrefixctlError, ServerError
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
    """One live version to warm, measured on the target.

    Attributes:
        prompt: The live version's text.
        version: Its number.
        measurement: On the target.
        drift: Why the target is not what the version was bumped for; empty if it is.
    """

    prompt: Prompt
    version: int
    measurement: Measurement
    drift: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    item: WarmItem
    engine: Engine
    rank: int
    namespace: SaltedNamespace

    @property
    def key(self) -> str:
        """Names the work, without the salt."""
        prefix = self.item.measurement.key
        return f"{self.engine.url} {self.rank} {self.namespace.label} {prefix}"


def warm(
    items: Sequence[WarmItem],
    engines: Sequence[Engine],
    target: Target,
    namespaces: Sequence[SaltedNamespace],
    *,
    served_name: str,
    lease: Lease | None = None,
    concurrency: int = 2,
    left_out: Collection[tuple[str, str]] = (),
    on_outcome: Callable[[WarmOutcome, int, int], None] = lambda *_: None,
) -> WarmReport:
    """Warm every prefix on every data-parallel rank of every server, in every namespace.

    A server that does not answer, or is not what the target says, fails its own entries only.

    Args:
        items: Live versions.
        engines: One for each server.
        target: What the items were measured on.
        namespaces: At least one.
        served_name: The model that every server must serve.
        lease: Held while a prefix is filled and verified, so that of several warm-ups one fills
            it and the others find it resident.
        concurrency: Requests in flight at most on each server.
        left_out: Prompts and labels of namespaces in which they are not warmed.
        on_outcome: Called with each outcome, the number done and the number of all.
    """
    started = time.monotonic()
    jobs: list[_Job] = []
    refused: dict[int, WarmOutcome] = {}
    for engine in engines:
        ranks, error = _inspect(engine, target, served_name)
        for item in items:
            for rank in range(ranks):
                for namespace in namespaces:
                    if (item.prompt.name, namespace.label) in left_out:
                        continue
                    job = _Job(item=item, engine=engine, rank=rank, namespace=namespace)
                    problem = DriftError(item.drift) if item.drift else error
                    if problem is not None:
                        refused[len(jobs)] = _refused(job, problem)
                    jobs.append(job)
    outcomes: dict[int, WarmOutcome] = {}
    finished = _run(jobs, refused, target, lease, concurrency)
    for done, (index, outcome) in enumerate(finished, start=1):
        outcomes[index] = outcome
        on_outcome(outcome, done, len(jobs))
    ordered = tuple(outcomes[i] for i in range(len(jobs)))
    return WarmReport(outcomes=ordered, seconds=time.monotonic() - started)


def _inspect(engine: Engine, target: Target, served_name: str) -> tuple[int, PrefixctlError | None]:
    """The ranks of a server, and why it cannot be warmed, if it cannot."""
    try:
        facts = engine.facts()
    except PrefixctlError as exc:
        return 1, exc
    wanted = target.material
    if served_name not in facts.models:
        return facts.ranks, DriftError(
            f"the server serves {', '.join(facts.models)}, not '{served_name}'"
        )
    for what, there, here in (
        ("block size", facts.block_size, wanted.block_size),
        ("block hash", facts.hash_algorithm, wanted.hash_algorithm),
    ):
        if there is not None and there != here:
            return facts.ranks, DriftError(
                f"the server's {what} is {there}, target '{target.name}' has {here}"
            )
    return facts.ranks, None


def _run(
    jobs: Sequence[_Job],
    refused: Mapping[int, WarmOutcome],
    target: Target,
    lease: Lease | None,
    concurrency: int,
) -> Iterator[tuple[int, WarmOutcome]]:
    """Outcomes as they come; each server has its own workers, so a slow one holds up no other."""
    yield from refused.items()
    cancelled = threading.Event()
    engines = {id(job.engine): job.engine for job in jobs}
    pools = {key: ThreadPoolExecutor(max_workers=concurrency) for key in engines}
    pending = {
        pools[id(job.engine)].submit(_warm_one, job, target, lease, cancelled): index
        for index, job in enumerate(jobs)
        if index not in refused
    }
    try:
        for future in as_completed(pending):
            yield pending[future], future.result()
    finally:
        # After an interrupt nobody waits for requests in flight: the caller closes the engines.
        cancelled.set()
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


def _warm_one(
    job: _Job, target: Target, lease: Lease | None, cancelled: threading.Event
) -> WarmOutcome:
    if cancelled.is_set():
        return _outcome(job, WarmStatus.FAILED, message="interrupted")
    started = time.monotonic()
    try:
        with lease.hold(job.key) if lease else nullcontext():
            use, state, was_resident = _fill_and_verify(job, target)
    except PrefixctlError as exc:
        return _refused(job, exc)
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


def _fill_and_verify(job: _Job, target: Target) -> tuple[CacheUse, CacheState, bool]:
    """The last use and state, and whether the first request found the prefix whole."""
    first = _request(job, target, 0)
    use, state = _send(job, target, first, _check_tokens(job, target, first))
    was_resident = state is CacheState.FULL
    if state in {CacheState.MISS, CacheState.PARTIAL}:
        second = _request(job, target, 1)
        use, state = _send(job, target, second, len(target.tokenizer.token_ids(second)))
    return use, state, was_resident


def _request(job: _Job, target: Target, index: int) -> ChatRequest:
    values = probe_values(job.item.prompt, index, target.settings.parameters)
    return render(job.item.prompt, values)


def _send(
    job: _Job, target: Target, request: ChatRequest, tokens: int
) -> tuple[CacheUse, CacheState]:
    use = job.engine.complete(request, salt=job.namespace.salt, rank=job.rank).use
    if use.prompt_tokens != tokens:
        raise ServerError(
            f"{job.engine.url} counts {use.prompt_tokens:,} tokens for a request of {tokens:,}"
        )
    shared = min(job.item.measurement.alignment.shared_tokens, use.prompt_tokens)
    expected = expected_hit_tokens(shared, use.prompt_tokens, target.material.block_size)
    return use, use.state(expected if job.item.measurement.governed else 0)


def _check_tokens(job: _Job, target: Target, request: ChatRequest) -> int:
    """The number of tokens; the server must see the very ones that the key was made of."""
    local, served = target.tokenizer.token_ids(request), job.engine.tokenize(request)
    if local == served:
        return len(local)
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


def _refused(job: _Job, exc: PrefixctlError) -> WarmOutcome:
    status = WarmStatus.DRIFT if isinstance(exc, DriftError) else WarmStatus.FAILED
    return _outcome(job, status, message=f"{exc}; {exc.hint}" if exc.hint else str(exc))


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
