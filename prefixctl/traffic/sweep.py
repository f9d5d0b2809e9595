"""LRU at many capacities in one pass over the requests."""

from __future__ import annotations

from collections.abc import Sequence

from prefixctl.traffic.setup import PLAIN, Counts, Outcome, Setup
from prefixctl.traffic.workload import Workload


def sweep_lru(workload: Workload, capacities: Sequence[int]) -> list[Outcome]:
    """What `replay` says for LRU under the plain rules, for all capacities at once.

    LRU is a stack algorithm (Mattson et al., 1970): with room for n blocks it holds the n that
    were used last. A request uses its blocks tail first, so what is left of an older request
    stands together in the stack, and a request needs one count, in O(log requests), for each
    older request that it shares blocks with, not for each block.

    Args:
        workload: The requests.
        capacities: In blocks.
    """
    requests = len(workload)
    last_use = [0] * workload.contents
    counts = [0] * (requests + 1)
    hits = [0] * len(capacities)
    used = asked = 0
    for number, chain in enumerate(workload.chains, 1):
        asked += len(chain)
        start, size = 0, len(chain)
        while start < size:
            then = last_use[chain[start]]
            if not then:
                break
            end = start + 1
            while end < size and last_use[chain[end]] == then:
                end += 1
            run = end - start
            # Blocks above this run in the stack: of this request, and of requests after `then`.
            above = used - _sum(counts, then) + start
            for index, capacity in enumerate(capacities):
                if capacity > above:
                    hits[index] += min(capacity - above, run)
            _add(counts, then, -run)
            used -= run
            start = end
        for content in chain:
            last_use[content] = number
        _add(counts, number, size)
        used += size
    prompt_tokens = sum(workload.input_tokens)
    lengths = [len(chain) for chain in workload.chains]

    def evicted(capacity: int, hit: int) -> int:
        """A pool that was filled stays full: what was stored beyond its room took another's."""
        stored = sum(min(length, capacity) for length in lengths) - hit
        return max(stored - capacity, 0)

    return [
        Outcome(
            setup=Setup(policy="lru", capacity_blocks=capacity, rules=PLAIN),
            counts=Counts(
                requests=requests,
                asked_blocks=asked,
                hit_blocks=hit,
                prompt_tokens=prompt_tokens,
                evicted_blocks=evicted(capacity, hit),
            ),
            block_tokens=workload.block_tokens,
            replica_hits=(hit,),
            replica_requests=(requests,),
        )
        for capacity, hit in zip(capacities, hits, strict=True)
    ]


def _add(tree: list[int], position: int, value: int) -> None:
    """Fenwick's tree (1994): add at a position from 1."""
    size = len(tree)
    while position < size:
        tree[position] += value
        position += position & -position


def _sum(tree: list[int], position: int) -> int:
    """The sum up to and with a position."""
    total = 0
    while position:
        total += tree[position]
        position -= position & -position
    return total
