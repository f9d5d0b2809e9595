"""What lies below the device, as the engine's desk sees it: pins, purging, occupancy."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from vllm.v1.kv_offload.base import make_offload_key

from prefixctl.core.pinbook import Wish
from prefixctl.tiers.block import owner_tag
from prefixctl.vllm_plugin.tiers.host import GovernedHostTier
from prefixctl.vllm_plugin.tiers.nvme import NvmeTier
from prefixctl.vllm_plugin.tiers.origin import label_of, origin_of

RENEW_SECONDS = 5.0
"""How often at most the tiers are told again what is pinned."""


class TiersBelow:
    """Host memory and disk of one engine; to be called from the scheduler's thread.

    Attributes:
        has_strangers: Whether there is a tier that is not ours.
    """

    def __init__(self, scheduler: Any) -> None:
        """Set up.

        Args:
            scheduler: vLLM's `OffloadingConnectorScheduler`, with a manager that our spec has made.
        """
        manager = scheduler.manager
        self._scheduler = scheduler
        self._host: GovernedHostTier = manager.primary_tier
        self._disks = [tier for tier in manager.secondary_tiers if isinstance(tier, NvmeTier)]
        self.has_strangers = len(self._disks) < len(manager.secondary_tiers)
        self._wishes: tuple[Wish, ...] = ()
        self._wanted: list[bytes] = []
        self._renewed = 0.0

    @classmethod
    def of(cls, connector: Any) -> TiersBelow | None:
        """Those of a scheduler's connector, None if it is not ours."""
        inner: Any = getattr(connector, "connector_scheduler", None)
        if inner is None or not isinstance(inner.manager.primary_tier, GovernedHostTier):
            return None
        return cls(inner)

    def hold(self, wishes: tuple[Wish, ...]) -> None:
        """Keep what is pinned on the device below it as well; called every few seconds.

        What is there is kept, and what comes; nothing is brought down from the device for it.
        """
        changed = wishes != self._wishes
        if changed:
            self._wishes = wishes
            named = [(label_of(wish.version), self._keys(wish)) for wish in wishes]
            self._wanted = [key for _, keys in named for key in keys]
            for disk in self._disks:
                disk.versions = {key: label for label, keys in named for key in keys}
        # Again and again: the share of a tier may have room by now for what was refused.
        if changed or (wishes and time.monotonic() - self._renewed >= RENEW_SECONDS):
            self._renewed = time.monotonic()
            self._host.policy.want(self._wanted)
            for disk in self._disks:
                disk.store.want(self._wanted)
                disk.renew_later()

    def purge(self, owners: Collection[str]) -> tuple[int, int]:
        """Remove from host memory what these owners have; see `GovernedHostTier.purge`.

        Requests that have ended, and whose last blocks are still to be stored, count as left. What
        is on the disk is forgotten, and its files are not touched: who asks for this removes them.
        """
        tags = {owner_tag(name) for name in owners}
        gone, left = self._host.purge(tags)
        for disk in self._disks:
            disk.store.forget(tags)
        return gone, left + sum(
            status.req.is_finished() and not tags.isdisjoint(_tags(status.req_context))
            for status in self._scheduler._req_status.values()  # noqa: SLF001 - see seams
        )

    def state(self) -> dict[str, Any]:
        """Blocks and pins of each tier, as plain values; and why one is closed."""
        policy = self._host.policy
        told: dict[str, Any] = {"host": {"blocks": len(policy), "pinned": policy.pinned}}
        for disk in self._disks:
            found = disk.store.snapshot()
            told["nvme"] = {
                "blocks": found["blocks"],
                "pinned": found["pinned_blocks"],
                "closed": disk.closed,
            }
        return told

    def _keys(self, wish: Wish) -> list[bytes]:
        """The names of its blocks here: in each group the hash of a chunk's last block.

        Of a group that looks back no further than a window, those of the last window.
        """
        keys: list[bytes] = []
        for group in self._scheduler.config.kv_group_configs:
            each, window = group.hashes_per_chunk, group.sliding_window_size_in_chunks
            hashes = wish.keys[each - 1 :: each]
            hashes = hashes if window is None else hashes[-window:]
            keys += [bytes(make_offload_key(key, group.group_idx)) for key in hashes]
        return keys


def _tags(req_context: Any) -> set[bytes]:
    origin = origin_of(req_context)
    return {origin.owner, origin.group}
