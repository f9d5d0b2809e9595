"""The tiers' counters as series on vLLM's own ``/metrics``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    OffloadingHistogramMetadata,
)

from prefixctl.tiers.counters import LATENCY_BOUNDS_SECONDS

HITS = "prefixctl_tier_hits"
MISSES = "prefixctl_tier_misses"
STORED = "prefixctl_tier_stored_blocks"
REFUSED = "prefixctl_tier_refused_blocks"
EVICTIONS = "prefixctl_tier_evictions"
LOAD_SECONDS = "prefixctl_tier_load_seconds"
STORE_SECONDS = "prefixctl_tier_store_seconds"
BYTES = "prefixctl_tier_bytes"
MAX_BYTES = "prefixctl_tier_max_bytes"
BLOCKS = "prefixctl_tier_blocks"
PINNED = "prefixctl_tier_pinned_blocks"
CLOSED = "prefixctl_tier_closed"
LOAD_LATENCY = "prefixctl_tier_load_latency_seconds"
STORE_LATENCY = "prefixctl_tier_store_latency_seconds"

_COUNTERS = {
    HITS: ("Blocks that were found; those of the disk were loaded and verified.", ()),
    MISSES: ("Blocks that were asked for and not served, by cause.", ("cause",)),
    STORED: ("Blocks that were written.", ()),
    REFUSED: ("Blocks that were not written, by reason.", ("reason",)),
    EVICTIONS: ("Blocks that left, by reason.", ("reason",)),
    LOAD_SECONDS: ("Seconds spent on loading blocks.", ()),
    STORE_SECONDS: ("Seconds spent on writing blocks.", ()),
}
_GAUGES = {
    BYTES: "Space of all blocks; on the disk of all servers that share the folder.",
    MAX_BYTES: "Space that they may take.",
    BLOCKS: "Blocks of this server's model that it knows of.",
    PINNED: "Blocks that no eviction may choose.",
    CLOSED: "1 from when the model's weights were replaced under the tier until a restart.",
}
_HISTOGRAMS = {
    LOAD_LATENCY: "Seconds that it took to load a block and verify it.",
    STORE_LATENCY: "Seconds that it took to write a block.",
}


def definitions() -> dict[str, Any]:
    """What vLLM needs to know of each series."""
    counters = {
        name: OffloadingCounterMetadata(documentation=text, labelnames=("tier", *labels))
        for name, (text, labels) in _COUNTERS.items()
    }
    gauges = {
        name: OffloadingGaugeMetadata(documentation=text, labelnames=("tier",))
        for name, text in _GAUGES.items()
    }
    histograms = {
        name: OffloadingHistogramMetadata(
            documentation=text, labelnames=("tier",), buckets=LATENCY_BOUNDS_SECONDS
        )
        for name, text in _HISTOGRAMS.items()
    }
    return {**counters, **gauges, **histograms}


def host_stats(
    left: Mapping[str, int],
    *,
    hits: int,
    misses: Mapping[str, int],
    blocks: int,
    pinned: int,
    block_bytes: int,
    capacity: int,
) -> OffloadingConnectorStats:
    """The host tier: what was found, missed and left since the last call, and what is there."""
    made = OffloadingConnectorStats()
    made.increase_counter(HITS, hits, ("host",))
    for cause, count in misses.items():
        made.increase_counter(MISSES, count, ("host", cause))
    for reason, count in left.items():
        made.increase_counter(EVICTIONS, count, ("host", reason))
    made.set_gauge(BYTES, blocks * block_bytes, ("host",))
    made.set_gauge(MAX_BYTES, capacity * block_bytes, ("host",))
    made.set_gauge(BLOCKS, blocks, ("host",))
    made.set_gauge(PINNED, pinned, ("host",))
    return made


def stats(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    latencies: Mapping[str, Sequence[float]],
    *,
    closed: bool,
) -> OffloadingConnectorStats:
    """What changed between two snapshots of a store, and how long its work took meanwhile."""
    made, tier = OffloadingConnectorStats(), now["tier"]
    for name, key in ((HITS, "hits"), (STORED, "stored")):
        made.increase_counter(name, now[key] - before[key], (tier,))
    for name, key in ((LOAD_SECONDS, "load"), (STORE_SECONDS, "store")):
        spent = now[key]["seconds"] - before[key]["seconds"]
        made.increase_counter(name, spent, (tier,))
    for name, key in ((MISSES, "misses"), (REFUSED, "refused"), (EVICTIONS, "evictions")):
        for label, count in now[key].items():
            made.increase_counter(name, count - before[key][label], (tier, label))
    for name, key in (
        (BYTES, "bytes"),
        (MAX_BYTES, "max_bytes"),
        (BLOCKS, "blocks"),
        (PINNED, "pinned_blocks"),
    ):
        made.set_gauge(name, now[key], (tier,))
    made.set_gauge(CLOSED, int(closed), (tier,))
    for name, key in ((LOAD_LATENCY, "load"), (STORE_LATENCY, "store")):
        for seconds in latencies[key]:
            made.observe_histogram(name, seconds, (tier,))
    return made
