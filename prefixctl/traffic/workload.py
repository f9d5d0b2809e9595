"""What a simulation replays: requests as chains of content ids, and whose they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from prefixctl.core.blocks import common_prefix_tokens
from prefixctl.sources.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests in order of arrival; the lists are of equal length.

    Attributes:
        block_tokens: The block size.
        arrivals_seconds: When each request arrives.
        input_tokens: Its prompt.
        output_tokens: Its answer.
        chains: Its full prompt blocks, root first.
        contents: Content ids run from 0 to this number.
        owners: A number for its tenant, from 1; 0 if it has none.
        public_blocks: Leading blocks that belong to all tenants (owner 0).
    """

    block_tokens: int
    arrivals_seconds: Sequence[float] = field(repr=False)
    input_tokens: Sequence[int] = field(repr=False)
    output_tokens: Sequence[int] = field(repr=False)
    chains: Sequence[Sequence[int]] = field(repr=False)
    contents: int
    owners: Sequence[int] = field(repr=False)
    public_blocks: int = 0

    def __len__(self) -> int:
        return len(self.chains)

    def blocks_written(self, number: int) -> tuple[int, int]:
        """Blocks that a request and its answer take at its end, and how many of them are full.

        The last token of an answer is never fed back, so it has no place in the cache.
        """
        written = self.input_tokens[number] + max(self.output_tokens[number] - 1, 0)
        return -(-written // self.block_tokens), written // self.block_tokens

    def most_blocks(self) -> int:
        """A pool of so many blocks is never full."""
        return max(sum(self.blocks_written(number)[0] for number in range(len(self))), 1)

    def longest_chain(self) -> int:
        """Full prompt blocks of the longest request."""
        return max(map(len, self.chains), default=0)

    def largest_within(self, blocks: int) -> int:
        """The blocks of the largest request among those that fit into a pool."""
        sizes = (self.blocks_written(number)[0] for number in range(len(self)))
        return max((size for size in sizes if size <= blocks), default=0)


def workload_of(trace: Trace) -> Workload:
    """The requests of a trace; tenants are numbered in order of appearance."""
    numbers: dict[str, int] = {}
    return Workload(
        block_tokens=trace.block_tokens,
        arrivals_seconds=[t / 1000 for t in trace.timestamps_ms],
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        chains=trace.chains,
        contents=trace.contents,
        owners=[0 if t is None else numbers.setdefault(t, len(numbers) + 1) for t in trace.tenants],
    )


def shared_blocks(workload: Workload) -> int:
    """The leading blocks that all requests with more than those have in common."""
    longest = max(workload.chains, key=len, default=())
    shared = len(longest)
    for chain in workload.chains:
        common = common_prefix_tokens(longest[:shared], chain[:shared])
        if common < len(chain):
            shared = min(shared, common)
    return shared


def by_first_own_block(workload: Workload) -> Workload:
    """The same requests with sessions as tenants: a session is what follows one own block.

    The first own block is the one behind what all requests share. A request without one is a
    session of its own, so that nobody shares what cannot be told apart.
    """
    depth = shared_blocks(workload)
    numbers: dict[int, int] = {}
    owners = [
        numbers.setdefault(chain[depth] if len(chain) > depth else -number, len(numbers) + 1)
        for number, chain in enumerate(workload.chains, 1)
    ]
    return replace(workload, owners=owners, public_blocks=depth)


def salted(workload: Workload, *, public_blocks: int = 0) -> Workload:
    """The same requests with a salt for each tenant: contents of tenants are never equal.

    Args:
        workload: Requests with owners; those of owner 0 keep their contents, as without a salt.
        public_blocks: Leading blocks that stay shared: the salt enters behind them.
    """
    names: dict[tuple[int, int], int] = {}
    chains = [
        [
            names.setdefault((0 if position < public_blocks else owner, content), len(names))
            for position, content in enumerate(chain)
        ]
        for chain, owner in zip(workload.chains, workload.owners, strict=True)
    ]
    return replace(workload, chains=chains, contents=len(names), public_blocks=public_blocks)


def next_uses(workload: Workload) -> list[list[int]]:
    """For each block of each request the number of the next request with the same content."""
    never = len(workload)
    following = [never] * workload.contents
    result: list[list[int]] = [[] for _ in range(never)]
    for number in range(never - 1, -1, -1):
        chain = workload.chains[number]
        result[number] = [following[content] for content in chain]
        for content in chain:
            following[content] = number
    return result


def hottest(workload: Workload, prefixes: int, *, learned_from: float = 0.1) -> list[list[int]]:
    """The prefixes that are asked for most in the first part of a trace.

    A prefix ends where fewer requests go on than came: so a system prompt is one prefix,
    however long. It must have been asked for twice, and it includes the prefixes before it.

    Args:
        workload: The requests.
        prefixes: How many.
        learned_from: The share of the requests to look at.
    """
    seen = workload.chains[: max(int(len(workload) * learned_from), 1)]
    counts = Counter(content for chain in seen for content in chain)
    ends: dict[int, list[int]] = {}
    for chain in seen:
        known = list(takewhile(lambda content: counts[content] > 1, chain))
        for position, content in enumerate(known, 1):
            after = counts[known[position]] if position < len(known) else 0
            if after < counts[content]:
                ends.setdefault(content, known[:position])
    ranked = sorted(ends.items(), key=lambda end: (-counts[end[0]], len(end[1]), end[0]))
    return [chain for _, chain in ranked[:prefixes]]
