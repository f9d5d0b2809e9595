"""The host tier as vLLM manages it, with a time to live, purging, and counters of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, OffloadingEvent
from vllm.v1.kv_offload.tiering.manager import CPUPrimaryTierOffloadingManager

from prefixctl.tiers.block import GROUP_BYTES, MissCause
from prefixctl.tiers.counters import EvictionReason
from prefixctl.vllm_plugin.tiers import metrics
from prefixctl.vllm_plugin.tiers.host_policy import GovernedCachePolicy
from prefixctl.vllm_plugin.tiers.origin import chain_of

HOST_MISSES = (MissCause.ABSENT, MissCause.EXPIRED)


class GovernedHostTier(CPUPrimaryTierOffloadingManager):  # type: ignore[misc]
    """vLLM's manager of host memory over a governed policy; see `adopt`.

    Attributes:
        left: Chunks that went, by reason.
        asked: Chunks that requests asked for, once each: the hits as ``""``, or why not.
        reported: What of both was handed on to the metrics page.
        fenced: Nothing may come up from below: a worker may still write into rows that were
            given up by a reset, or the weights were replaced; see `connector`.
    """

    _policy: GovernedCachePolicy
    left: Counter[EvictionReason]
    asked: Counter[str]
    fenced: bool
    reported: tuple[Counter[EvictionReason], Counter[str]]

    @classmethod
    def adopt(cls, manager: CPUPrimaryTierOffloadingManager) -> GovernedHostTier:
        """Make vLLM's manager a governed one; everybody who holds it keeps holding it."""
        if type(manager) is not CPUPrimaryTierOffloadingManager:
            raise TypeError(f"a {type(manager).__name__} cannot be governed")
        manager.__class__ = cls
        # vLLM made this name for what comes from below; here it is a method of its own.
        del manager.prepare_write
        manager.left, manager.asked, manager.fenced = Counter(), Counter(), False
        manager.reported = Counter(), Counter()
        governed: GovernedHostTier = manager
        return governed

    @property
    def policy(self) -> GovernedCachePolicy:
        """The order of its chunks."""
        return self._policy

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        """As vLLM's, but a chunk that is too old goes and is not found."""
        expired = self._policy.is_expired(key)
        if expired:
            self._drop(key, EvictionReason.EXPIRED)
        found: LookupResult = super().lookup(key, req_context)
        counted = chain_of(req_context).counted
        if found is not LookupResult.HIT_PENDING and key not in counted:
            counted.add(key)
            cause = MissCause.EXPIRED if expired else MissCause.ABSENT
            self.asked["" if found is LookupResult.HIT else cause.value] += 1
        return found

    def prepare_load(self, keys: Collection[bytes], req_context: Any) -> Any:
        """As vLLM's; the request has what it waited for."""
        rows = super().prepare_load(keys, req_context)
        self._policy.release([req_context.req_id])
        return rows

    def prepare_write(self, keys: Collection[bytes], req_context: Any) -> Any:
        """Rows for what comes up from below for a request that waits; None if there are none.

        What the request has found so far stays until it is served, and what others wait for.
        """
        if self.fenced:
            return None
        policy, request = self._policy, req_context.req_id
        if not policy.has_claims(request):
            policy.claim(request, chain_of(req_context).parents)
        policy.firm = True
        try:
            output = self.prepare_store(keys, req_context)
        finally:
            policy.firm = False
        if output is not None:
            policy.claim(request, output.keys_to_store)
        return output

    def release_served(self, requests: Collection[str]) -> None:
        """These requests run now, or wait for rows that they read: they claim nothing more."""
        self._policy.release_served(requests)

    def on_request_finished(self, req_context: Any) -> None:
        """As vLLM's."""
        self._policy.release([req_context.req_id])
        super().on_request_finished(req_context)

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Any:
        """As vLLM's; the policy hears whose chunks come, and what had to go is counted.

        Of a prefix that never fits the head is stored, which is of use without the rest.
        """
        self._policy.expect(keys, req_context)
        output = super().prepare_store(keys, req_context)
        if output is None and not self._policy.firm:
            head = self._head(keys)
            output = super().prepare_store(head, req_context) if head else None
        if output is not None:
            self.left[EvictionReason.SPACE] += len(output.evicted_keys)
        return output

    def _head(self, keys: Collection[bytes]) -> list[bytes]:
        """As many of these keys as there is room for now, if there never is room for all.

        What there is room for later is offered again by vLLM. With several cache groups a part of
        one is of no use.
        """
        if len({key[-GROUP_BYTES:] for key in keys}) > 1:
            return []
        fresh = [at for at, key in enumerate(keys) if self._policy.get(key) is None]
        room = self._get_num_free_chunks() + self._policy.room_beside(keys)
        never = len(keys) > self._num_chunks - self._policy.pinned
        return list(keys)[: fresh[room]] if never and 0 < room < len(fresh) else []

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
        left, asked = self.reported
        self.reported = Counter(self.left), Counter(self.asked)
        gone, fresh = self.left - left, self.asked - asked
        chunk_bytes = self._kv_memoryview.strides[0]
        mine = metrics.host_stats(
            {reason.value: gone[reason] for reason in EvictionReason},
            hits=fresh[""],
            misses={cause.value: fresh[cause.value] for cause in HOST_MISSES},
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
