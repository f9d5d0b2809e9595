"""The tiers' counters as series on vLLM's own ``/metrics``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import OffloadingCounterMetadata, OffloadingGaugeMetadata

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

_COUNTERS = {
    HITS: ("Blocks that were loaded and verified.", ()),
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
    return {**counters, **gauges}


def host_stats(
    left: Mapping[str, int], *, blocks: int, pinned: int, block_bytes: int, capacity: int
) -> OffloadingConnectorStats:
    """The host tier: what left since the last call by reason, and what is there."""
    made = OffloadingConnectorStats()
    for reason, count in left.items():
        made.increase_counter(EVICTIONS, count, ("host", reason))
    made.set_gauge(BYTES, blocks * block_bytes, ("host",))
    made.set_gauge(MAX_BYTES, capacity * block_bytes, ("host",))
    made.set_gauge(BLOCKS, blocks, ("host",))
    made.set_gauge(PINNED, pinned, ("host",))
    return made


def stats(before: Mapping[str, Any], now: Mapping[str, Any]) -> OffloadingConnectorStats:
    """What changed between two snapshots of a store."""
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
    return made
