"""The host tier's eviction: the policies of `core.policy` behind vLLM's `CachePolicy`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, ClassVar

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, order_request_keys

from prefixctl.core.policy.pins import PinOutcome
from prefixctl.core.policy.tier import KeptKeys, Rules, TierOrder
from prefixctl.tiers.block import NO_OWNER
from prefixctl.vllm_plugin.tiers.origin import chain_of, origin_of


class GovernedCachePolicy(CachePolicy):  # type: ignore[misc]
    """Chunks of host memory as slots of a policy.

    A chunk that is being filled or read is in use; an idle one may go, the last of a prefix
    first. A chunk that a waiting request has claimed stays until the request is served: else what
    comes up from the disk for one request would push out what has come up for it before, or for
    another one, and none of them would ever find its prefix whole. vLLM makes the policy by name,
    with the capacity alone: `rules` is set before.

    Attributes:
        rules: What to keep.
        clock: The time in seconds.
        firm: Whether claims hold against what wants room now. They do against loads from the
            disk; what running requests store goes before them.
    """

    rules: ClassVar[Rules] = Rules()
    clock: ClassVar[Callable[[], float]] = time.monotonic

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        self.firm = False
        self._kept = KeptKeys(self._slot_of)
        self.clear()

    def clear(self) -> None:
        """Forget all chunks; what is to be kept stays so."""
        order = TierOrder(type(self).rules, self.cache_capacity, type(self).clock)
        self._blocks, self._order = order.blocks, order.leaves
        self._expiry, self._policy = order.expiry, order.pins
        self._kept.pins = order.pins
        self._chunks: dict[bytes, Any] = {}
        self._keys: dict[int, bytes] = {}
        self._idle: set[bytes] = set()
        self._claims: dict[str, dict[bytes, None]] = {}
        self._claimed: Counter[bytes] = Counter()
        self._withdrawn: set[bytes] = set()
        self._expected: dict[bytes, tuple[bytes, bytes]] = {}
        self._owners: dict[bytes, int] = {NO_OWNER: 0}
        self._owner_of: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    def pinned(self) -> int:
        """Chunks that no eviction may choose."""
        return self._policy.pinned

    def get(self, key: bytes) -> Any:
        """The chunk of a key, None if there is none."""
        return self._chunks.get(key)

    def expect(self, keys: Iterable[bytes], req_context: Any) -> None:
        """Keys that a request offers: remember whose they are and what they hang on.

        All of them: vLLM tells `on_store_miss` of a key once for each request, and offers it again
        where there was no room.
        """
        self._expected.clear()
        self.on_store_miss(keys, req_context)

    def on_store_miss(self, keys: Iterable[bytes], req_context: Any) -> None:
        """Keys that will be inserted for the first time; see `expect`."""
        parents, origin = chain_of(req_context).parents, origin_of(req_context)
        for key in keys:
            owner = origin.owner_of(req_context.get_offload_key_position(key))
            self._expected[key] = parents.get(key, (b"", 0))[0], owner

    def insert(self, key: bytes, chunk: Any) -> None:
        """A chunk was given to a key."""
        parent, owner = self._expected.pop(key, (b"", NO_OWNER))
        above = self._chunks.get(parent)
        number = self._owners.setdefault(owner, len(self._owners))
        self._chunks[key] = chunk
        self._owner_of[key] = owner
        self._keys[chunk.chunk_id] = key
        names: list[Hashable] = [key]
        slot = None if above is None else above.chunk_id
        self._policy.admit([chunk.chunk_id], names, slot, number)
        self._kept.came(key, chunk.chunk_id)
        if chunk.ref_cnt == 0:
            self.mark_evictable(key)

    def is_expired(self, key: bytes) -> bool:
        """Whether nobody has used a chunk for too long; one in use or pinned has no age."""
        return key in self._idle and not self._expiry.fresh([self._chunks[key].chunk_id])

    def of_owners(self, tags: Collection[bytes]) -> list[bytes]:
        """The keys of these owners' chunks, the deepest of a prefix first."""
        return [key for key, owner in reversed(self._owner_of.items()) if owner in tags]

    def is_idle(self, key: bytes) -> bool:
        """Whether nobody reads or fills a chunk."""
        return key in self._idle

    def remove(self, key: bytes) -> None:
        """A store has failed, or the chunk has to go."""
        chunk = self._chunks[key]
        self._policy.drop([chunk.chunk_id])
        self._forget(chunk.chunk_id)

    def touch(self, keys: Iterable[bytes], req_context: Any) -> None:  # noqa: ARG002 - vLLM's
        """Chunks were used by one request, the root first."""
        slots = [self._chunks[key].chunk_id for key in keys if key in self._chunks]
        self._policy.hold(slots)
        self._policy.free([s for s in reversed(slots) if self._is_loose(self._keys[s])])

    def on_request_finished(
        self,
        key_groups: Sequence[Sequence[bytes]],
        insertion_only_keys: set[bytes],
        reused_keys: set[bytes],  # noqa: ARG002 - the rest of the keys
        req_context: Any,
    ) -> None:
        """A request has ended: what it found was used, what it brought was not yet."""
        ordered = order_request_keys(key_groups, req_context)
        self.touch([key for key in ordered if key not in insertion_only_keys], req_context)

    def evict(self, n: int, protected: set[bytes]) -> list[tuple[bytes, Any]] | None:
        """Exactly so many idle chunks, or None and nothing has changed."""
        if n == 0:
            return []
        if self.room_beside(protected) < n and not self.firm:
            self.release(list(self._claims))
        if self.room_beside(protected) < n:
            return None
        slots = self._evict_others(n, self._evictable(protected))
        victims = [(self._keys[slot], self._chunks[self._keys[slot]]) for slot in slots]
        for slot in slots:
            self._forget(slot)
        return victims

    def room_beside(self, keys: Iterable[bytes]) -> int:
        """How many chunks could go without touching these."""
        return self._free_to_go - len(self._evictable(keys))

    def mark_evictable(self, key: bytes) -> None:
        """Nobody reads or fills a chunk any more."""
        self._idle.add(key)
        if key in self._claimed:
            self._withdrawn.add(key)
        else:
            self._policy.free([self._chunks[key].chunk_id])

    def mark_non_evictable(self, key: bytes) -> None:
        """A chunk is being read."""
        self._idle.discard(key)
        self._withdrawn.discard(key)
        self._policy.hold([self._chunks[key].chunk_id], hit=False)

    def has_claims(self, request: str) -> bool:
        """Whether a request has claimed chunks."""
        return request in self._claims

    def claim(self, request: str, keys: Iterable[bytes]) -> None:
        """Keep those of these chunks that are here until the request is served, root first."""
        claims = self._claims.setdefault(request, {})
        for key in keys:
            if key in claims or key not in self._chunks or self.is_expired(key):
                continue
            claims[key] = None
            self._claimed[key] += 1
            if self._is_loose(key):
                self._withdrawn.add(key)
                self._policy.hold([self._chunks[key].chunk_id], hit=False)

    def release(self, requests: Iterable[str]) -> None:
        """These requests claim nothing any more: they are served, or gone."""
        for request in requests:
            loose = []
            for key in reversed(self._claims.pop(request, {})):
                self._claimed[key] -= 1
                if self._claimed[key]:
                    continue
                del self._claimed[key]
                if key in self._withdrawn:
                    self._withdrawn.discard(key)
                    loose.append(self._chunks[key].chunk_id)
            self._policy.free(loose)

    def release_served(self, requests: Collection[str]) -> None:
        """As `release`, of the requests that are among these."""
        self.release([request for request in self._claims if request in requests])

    def want(self, keys: Iterable[bytes]) -> None:
        """Keep these chunks and no others, the root first: those that are here or will come."""
        self._kept.want(keys)

    def pin(self, keys: Sequence[bytes]) -> PinOutcome:
        """Keep chunks, the root first, up to the share of the rules."""
        return self._kept.pin(keys)

    def unpin(self, keys: Sequence[bytes]) -> int:
        """Let pinned chunks go again; returns how many were pinned."""
        return self._kept.unpin(keys)

    def _slot_of(self, key: bytes) -> int | None:
        chunk = self._chunks.get(key)
        return None if chunk is None else int(chunk.chunk_id)

    @property
    def _free_to_go(self) -> int:
        """Idle chunks that are neither pinned nor claimed."""
        return len(self._idle) - len(self._withdrawn) - self._policy.withheld

    def _is_loose(self, key: bytes) -> bool:
        """Whether a chunk is here, and nobody uses or claims it."""
        return key in self._idle and key not in self._withdrawn

    def _evictable(self, keys: Iterable[bytes]) -> list[int]:
        """The slots of those of these chunks that an eviction could choose."""
        slots = [self._chunks[key].chunk_id for key in keys if self._is_loose(key)]
        return [slot for slot in slots if not self._policy.is_pinned(slot)]

    def _evict_others(self, n: int, spared: Sequence[int]) -> list[int]:
        """Evict, but not these idle ones; their age and their place in the order stay."""
        idle, children = self._blocks.idle, self._blocks.children
        for slot in spared:
            idle[slot] = 0
        slots = self._policy.evict(n)
        for slot in spared:
            idle[slot] = 1
            if not children[slot]:
                self._order.enter(slot)
        return slots

    def _forget(self, slot: int) -> None:
        key = self._keys.pop(slot)
        del self._chunks[key], self._owner_of[key]
        self._idle.discard(key)
        self._withdrawn.discard(key)
