"""What a server's metrics page says of its tiers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

SERIES = re.compile(r"^(prefixctl_tier_\w+|vllm:prompt_tokens\w*)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')
PREFIX = "prefixctl_tier_"
SHARED = "nvme"
"""The tier that all engines of a host have in common: each tells the same of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long something took, in milliseconds, from a histogram: linear inside a bucket."""

    count: int
    median_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFigures:
    """One tier of a server, since it started.

    Attributes:
        hits: Blocks that were found.
        misses: Blocks that were asked for and not served, by cause.
        stored: Blocks that were written.
        refused: Blocks that were not written, by reason.
        evictions: Blocks that left, by reason.
        load: Time to load and verify a block, None if none was.
        store: Time to write a block, None if none was.
        blocks: Blocks that are there.
        pinned: Those that no eviction may choose.
        bytes: Space in use; on a disk that of all servers together.
        max_bytes: Space allowed.
    """

    hits: int = 0
    misses: dict[str, int] = field(default_factory=dict)
    stored: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    evictions: dict[str, int] = field(default_factory=dict)
    load: Latency | None = None
    store: Latency | None = None
    blocks: int = 0
    pinned: int = 0
    bytes: int = 0
    max_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTiers:
    """What one server says of its tiers, since it started.

    Attributes:
        url: Its address.
        prompt_tokens: All of them.
        cached_tokens: Those that were not computed, by the tier that gave them.
        tiers: By name: ``host``, ``nvme``.
    """

    url: str
    prompt_tokens: int = 0
    cached_tokens: dict[str, int] = field(default_factory=dict)
    tiers: dict[str, TierFigures] = field(default_factory=dict)


def read_page(url: str, page: str) -> ServerTiers:
    """The figures of all engines of a server together.

    Args:
        url: Its address.
        page: In the text format of Prometheus.
    """
    cached: Counter[str] = Counter()
    prompt = 0.0
    seen: dict[str, list[tuple[str, dict[str, str], float]]] = {}
    for line in page.splitlines():
        match = SERIES.match(line)
        if match is None:
            continue
        name, labels, value = match[1], dict(LABEL.findall(match[2])), float(match[3])
        if name == "vllm:prompt_tokens_total":
            prompt += value
        elif name == "vllm:prompt_tokens_cached_by_source_total" and value:
            cached[labels.get("source", "")] += int(value)
        elif name.startswith(PREFIX):
            series = name.removeprefix(PREFIX).removesuffix("_total")
            seen.setdefault(labels.get("tier", ""), []).append((series, labels, value))
    return ServerTiers(
        url=url,
        prompt_tokens=int(prompt),
        cached_tokens=dict(cached),
        tiers={tier: _figures(tier, series) for tier, series in sorted(seen.items())},
    )


def _figures(tier: str, series: list[tuple[str, dict[str, str], float]]) -> TierFigures:
    def total(name: str) -> int:
        return int(sum(value for each, _, value in series if each == name))

    def by(label: str, name: str) -> dict[str, int]:
        found: Counter[str] = Counter()
        for each, labels, value in series:
            if each == name and value:
                found[labels.get(label, "")] += int(value)
        return dict(found)

    def gauge(name: str) -> int:
        values = [value for each, _, value in series if each == name]
        return int(max(values, default=0) if tier == SHARED else sum(values))

    def latency(name: str) -> Latency | None:
        buckets: Counter[float] = Counter()
        for each, labels, value in series:
            if each == f"{name}_latency_seconds_bucket":
                buckets[float(labels["le"])] += int(value)
        return _latency(buckets)

    return TierFigures(
        hits=total("hits"),
        misses=by("cause", "misses"),
        stored=total("stored_blocks"),
        refused=by("reason", "refused_blocks"),
        evictions=by("reason", "evictions"),
        load=latency("load"),
        store=latency("store"),
        blocks=gauge("blocks"),
        pinned=gauge("pinned_blocks"),
        bytes=gauge("bytes"),
        max_bytes=gauge("max_bytes"),
    )


def _latency(buckets: Mapping[float, int]) -> Latency | None:
    """From how many took at most so many seconds; None if nothing was observed."""
    bounds = sorted(buckets)
    count = buckets[bounds[-1]] if bounds else 0
    if not count:
        return None
    median, p99 = (_quantile(q, bounds, buckets, count) for q in (0.5, 0.99))
    return Latency(count=count, median_ms=1e3 * median, p99_ms=1e3 * p99)


def _quantile(q: float, bounds: list[float], buckets: Mapping[float, int], count: int) -> float:
    """As PromQL's `histogram_quantile`: in the last bucket its lower bound."""
    rank, below, start = q * count, 0, 0.0
    for bound in bounds:
        inside = buckets[bound] - below
        if buckets[bound] >= rank and inside:
            if bound == float("inf"):
                break
            return start + (bound - start) * (rank - below) / inside
        below, start = buckets[bound], bound
    return start
