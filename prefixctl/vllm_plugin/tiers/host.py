"""The host tier as vLLM manages it, with a time to live, purging, and counters of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, OffloadingEvent
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager

from prefixctl.tiers.counters import EvictionReason
from prefixctl.vllm_plugin.tiers import metrics
from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy


class GovernedHostTier(CPUPrimaryTierOffloadingManager):  # type: ignore[misc]
    """vLLM's manager of host memory over a governed policy; see `adopt`.

    Attributes:
        left: Chunks that went, by reason.
        reported: How many of them were handed on to the metrics page.
    """

    _policy: GovernedCachePolicy
    left: Counter[EvictionReason]
    reported: Counter[EvictionReason]

    @classmethod
    def adopt(cls, manager: CPUPrimaryTierOffloadingManager) -> GovernedHostTier:
        """Make vLLM's manager a governed one; everybody who holds it keeps holding it."""
        if type(manager) is not CPUPrimaryTierOffloadingManager:
            raise TypeError(f"a {type(manager).__name__} cannot be governed")
        manager.__class__ = cls
        # vLLM made this name for what comes from the disk while the class was still its own.
        manager.prepare_write = manager.prepare_store
        manager.left = Counter()
        manager.reported = Counter()
        governed: GovernedHostTier = manager
        return governed

    @property
    def policy(self) -> GovernedCachePolicy:
        """The order of its chunks."""
        return self._policy

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        """As vLLM's, but a chunk that is too old goes and is not found."""
        if self._policy.is_expired(key):
            self._drop(key, EvictionReason.EXPIRED)
        return super().lookup(key, req_context)

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Any:
        """As vLLM's; the policy hears whose chunks come, and what had to go is counted."""
        self._policy.expect(keys, req_context)
        output = super().prepare_store(keys, req_context)
        if output is not None:
            self.left[EvictionReason.SPACE] += len(output.evicted_keys)
        return output

    def purge(self, tags: Collection[bytes]) -> tuple[int, int]:
        """Remove the chunks of these owners.

        Returns:
            How many went, and how many are left because they are being read or filled.
        """
        doomed = self._policy.of_owners(tags)
        idle = [key for key in doomed if self._policy.is_idle(key)]
        for key in idle:
            self._drop(key, EvictionReason.PURGED)
        return len(idle), len(doomed) - len(idle)

    def get_stats(self) -> Any:
        """VLLM's own series and ours."""
        stats = super().get_stats()
        fresh = self.left - self.reported
        self.reported = Counter(self.left)
        chunk_bytes = self._kv_memoryview.strides[0]
        mine = metrics.host_stats(
            {reason.value: fresh[reason] for reason in EvictionReason},
            blocks=len(self._policy),
            pinned=self._policy.pinned,
            block_bytes=chunk_bytes,
            capacity=self._num_chunks,
        )
        return mine if stats is None else stats.aggregate(mine)

    def _drop(self, key: bytes, reason: EvictionReason) -> None:
        """An idle chunk goes for another reason than want of room."""
        chunk = self._policy.get(key)
        self._policy.remove(key)
        self._num_evictable_cache_chunks -= 1
        self._free_chunk(chunk)
        self.left[reason] += 1
        if self.events is not None:
            self.events.append(OffloadingEvent(keys=[key], medium=self.medium, removed=True))
