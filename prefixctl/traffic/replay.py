"""The replay of a workload through simulated servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from heapq import heappop, heappush

from prefixctl.traffic.choices import Routing
from prefixctl.traffic.replica import Replica
from prefixctl.traffic.setup import Counts, Outcome, Service, Setup
from prefixctl.traffic.workload import Workload, next_uses

LOAD_SLACK = 1.25
TOLD_EVERY = 256


def replay(
    workload: Workload,
    setup: Setup,
    *,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Outcome:
    """Send every request through the servers of a setup.

    Without `Service` requests run one at a time. With it they overlap: each arrives at its
    time, waits in order while its replica has no room, holds its blocks until its answer is
    complete, and takes uncached / prefill + answer / decode seconds. An answer's blocks are
    taken at the start, where vLLM takes them as it goes and preempts if it must.

    Args:
        workload: The requests.
        setup: The servers.
        on_progress: Told the number of requests done and of all, now and then.
    """
    run = _Run(workload, setup)
    uses = next_uses(workload) if setup.policy == "min" else None
    for number in range(len(workload)):
        run.serve(number, () if uses is None else uses[number])
        if not number % TOLD_EVERY:
            on_progress(number, len(workload))
    run.drain()
    on_progress(len(workload), len(workload))
    return run.outcome()


class _Run:
    """The servers and what runs on them, by time of completion."""

    def __init__(self, workload: Workload, setup: Setup) -> None:
        self._workload = workload
        self._setup = setup
        self._replicas = [Replica(setup, workload) for _ in range(setup.replicas)]
        self._running: list[list[tuple[float, int, list[int]]]] = [
            [] for _ in range(setup.replicas)
        ]

    def serve(self, number: int, next_uses: Sequence[int]) -> None:
        arrival = self._workload.arrivals_seconds[number]
        for index, replica in enumerate(self._replicas):
            replica.now = max(replica.now, arrival)
            self._complete(index, replica.now)
        index = self._choose(number)
        replica, running = self._replicas[index], self._running[index]
        service = self._setup.service
        limit = 1 if service is None else service.max_running
        waited = len(running) >= limit
        while len(running) >= limit:
            self._next(index)
        started = replica.start(number, next_uses)
        while started is None and running:
            waited = True
            self._next(index)
            started = replica.start(number, next_uses)
        if started is None:
            self._reject(replica, number)
            return
        replica.counts.waited += waited
        if service is None:
            replica.finish(started.slots)
            return
        end = replica.now + _seconds(
            service, started.computed_tokens, self._workload.output_tokens[number]
        )
        heappush(running, (end, number, started.slots))

    def drain(self) -> None:
        for index in range(len(self._replicas)):
            self._complete(index, float("inf"))

    def outcome(self) -> Outcome:
        total = Counts()
        for replica in self._replicas:
            for each in fields(Counts):
                mine, value = getattr(total, each.name), getattr(replica.counts, each.name)
                peak = each.name.startswith("peak_")
                setattr(total, each.name, max(mine, value) if peak else mine + value)
        return Outcome(
            setup=self._setup,
            counts=total,
            block_tokens=self._workload.block_tokens,
            replica_hits=tuple(r.counts.hit_blocks for r in self._replicas),
            replica_requests=tuple(r.counts.requests for r in self._replicas),
        )

    def _complete(self, index: int, until: float) -> None:
        running, replica = self._running[index], self._replicas[index]
        while running and running[0][0] <= until:
            replica.finish(heappop(running)[2])

    def _next(self, index: int) -> None:
        replica = self._replicas[index]
        end, _, slots = heappop(self._running[index])
        replica.now = max(replica.now, end)
        replica.finish(slots)

    def _reject(self, replica: Replica, number: int) -> None:
        counts, load = replica.counts, self._workload
        counts.requests += 1
        counts.rejected += 1
        counts.asked_blocks += len(load.chains[number])
        counts.prompt_tokens += load.input_tokens[number]

    def _choose(self, number: int) -> int:
        replicas = self._replicas
        if len(replicas) == 1:
            return 0
        if self._setup.routing is Routing.ROUND_ROBIN:
            return number % len(replicas)
        loads = [
            (len(running), replica.computed_tokens)
            for running, replica in zip(self._running, replicas, strict=True)
        ]
        idlest = min(range(len(replicas)), key=lambda i: (loads[i], i))
        if self._setup.routing is Routing.LEAST_LOAD:
            return idlest
        chain = self._workload.chains[number]
        found = [replica.pool.match(chain) for replica in replicas]
        best = max(range(len(replicas)), key=lambda i: (found[i], -replicas[i].computed_tokens))
        mean = sum(replica.computed_tokens for replica in replicas) / len(replicas)
        slack = LOAD_SLACK * mean + self._workload.input_tokens[number]
        return best if found[best] and replicas[best].computed_tokens <= slack else idlest


def _seconds(service: Service, computed_tokens: int, output_tokens: int) -> float:
    prefill = computed_tokens / service.prefill_tokens_per_second
    return prefill + output_tokens / service.decode_tokens_per_second
