"""vLLM's block pool with its free queue in the order of a policy, and with pins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock, get_block_hash

from prefixctl.core.pinbook import PinBook, Wish
from prefixctl.ids import BlockHash
from prefixctl.vllm_plugin.governor import Governor
from prefixctl.vllm_plugin.sharing import Library


class PolicyQueue:
    """vLLM's free queue: blocks without content first, then idle ones as the policy says."""

    def __init__(self, blocks: Sequence[KVCacheBlock], governor: Governor) -> None:
        self._blocks = blocks
        self._governor = governor
        self._blank = [block for block in reversed(blocks) if not block.is_null]
        self._idle = 0

    @property
    def num_free_blocks(self) -> int:
        """Blocks that a request could have."""
        return len(self._blank) + self._idle

    @property
    def blank(self) -> int:
        """Blocks without content."""
        return len(self._blank)

    @property
    def idle(self) -> int:
        """Blocks with content that nobody uses."""
        return self._idle

    def popleft(self) -> KVCacheBlock:
        """The first free block."""
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """The first free blocks; the caller has seen that there are so many."""
        blank = self._blank
        taken = [blank.pop() for _ in range(min(n, len(blank)))]
        if len(taken) < n:
            victims = self._governor.evict(n - len(taken))
            taken += [self._blocks[block] for block in victims]
            self._idle -= len(victims)
        if len(taken) < n:
            raise RuntimeError(f"{n} blocks wanted, and the policy gave {len(taken)}")
        return taken

    def remove(self, block: KVCacheBlock) -> None:  # noqa: ARG002 - vLLM's signature
        """An idle block is used again; the pool tells the policy for all at once."""
        self._idle -= 1

    def append(self, block: KVCacheBlock) -> None:
        """A block with content is idle."""
        self.append_n([block])

    def append_n(self, blocks: list[KVCacheBlock]) -> None:
        """Blocks with content are idle, the first to go first."""
        if not blocks:
            return
        governor = self._governor
        for block in blocks:
            if not governor.knows(block.block_id):
                governor.admit([block.block_id], [block.block_hash])
        self._idle += len(blocks)
        governor.free([block.block_id for block in blocks])

    def prepend_n(self, blocks: list[KVCacheBlock]) -> None:
        """Blocks without content are free."""
        for block in blocks:
            if self._governor.knows(block.block_id):
                self._governor.drop(block.block_id, "invalid")
        self._blank += reversed(blocks)

    def emptied(self, block: KVCacheBlock) -> None:
        """An idle block lost its content where it lay."""
        self._idle -= 1
        self._blank.append(block)

    def restart(self) -> None:
        """All blocks are free, and none has content."""
        self._blank = [block for block in reversed(self._blocks) if not block.is_null]
        self._idle = 0

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """Free blocks, in no order of eviction: the policy decides when it is asked."""
        free = {block.block_id for block in self._blank}
        return [
            block
            for block in self._blocks
            if not block.is_null
            and (block.block_id in free or (block.ref_cnt == 0 and block.block_hash is not None))
        ]


class GovernedBlockPool(BlockPool):  # type: ignore[misc]
    """A pool that tells its governor what happens to blocks, and keeps pinned ones.

    A pin is a reference: it keeps a block out of the free queue, as a running request does.

    Attributes:
        governor: Orders idle blocks.
        pins: Which blocks are to stay.
        requester: Owners that the request which blocks are being given to may hit: its tenant,
            and its group; None outside of a request.
        library: Public prefixes, if tenants share any.
        chained: See `adopt`.
        found_stale: A lookup came to a block that was too old.
        pinned_block_of: The pinned block of each content.
        is_pinned: The same by number.
        pinned_idle: Pinned blocks that nobody uses.
        pins_lost: How often a pinned block was let go.
    """

    governor: Governor
    pins: PinBook
    requester: tuple[int, ...] | None
    library: Library | None
    free_block_queue: PolicyQueue
    chained: bool
    found_stale: bool
    pinned_block_of: dict[BlockHash, KVCacheBlock]
    is_pinned: bytearray
    pinned_idle: int
    pins_lost: int

    @classmethod
    def adopt(
        cls, pool: BlockPool, governor: Governor, pins: PinBook, *, chained: bool
    ) -> GovernedBlockPool:
        """Make an unused pool a governed one; everybody who holds it keeps holding it.

        Args:
            pool: vLLM's.
            governor: Orders idle blocks.
            pins: Which blocks are to stay.
            chained: A block is found only through the ones before it, so that leaves go first.
                Windowed attention frees the front of a chain first: there each block is alone.
        """
        if pool.get_num_free_blocks() != pool.num_gpu_blocks - 1:
            raise RuntimeError("only a pool that nobody has used can be governed")
        pool.__class__ = cls
        pool.chained = chained
        pool.found_stale = False
        pool.governor = governor
        pool.pins = pins
        pool.requester = None
        pool.library = None
        pool.pinned_block_of = {}
        pool.is_pinned = bytearray(len(pool.blocks))
        pool.pinned_idle = 0
        pool.pins_lost = 0
        pool.free_block_queue = PolicyQueue(pool.blocks, governor)
        governed: GovernedBlockPool = pool
        return governed

    # What vLLM calls.

    def get_cached_block(
        self, block_hash: Any, kv_cache_group_ids: list[int]
    ) -> list[KVCacheBlock] | None:
        """As vLLM's, but a block that is too old is emptied and not found."""
        found: list[KVCacheBlock] | None = super().get_cached_block(block_hash, kv_cache_group_ids)
        if found is None:
            return None
        stale = [b for b in found if b.ref_cnt == 0 and not self.governor.is_fresh(b.block_id)]
        if not stale:
            return found
        for block in stale:
            self._emit_block_removed_events(self._empty(block, "ttl"))
        self.found_stale = True
        return None

    def touch(self, blocks: Sequence[KVCacheBlock]) -> None:
        """As vLLM's; the hit counts for the policy and for the prefixes that end in it."""
        self._use_pins(blocks)
        super().touch(blocks)
        numbers = [block.block_id for block in blocks if self._is_governed(block)]
        self.governor.hold(numbers, hit=self.requester is not None)
        if self.requester is None:
            return
        self.governor.see_hit(numbers, self.requester)
        for block in blocks:
            if block.block_hash is not None:
                for name in self.pins.ending(get_block_hash(block.block_hash)):
                    self._count_hit(name)

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """As vLLM's."""
        blocks = list(ordered_blocks)
        super().free_blocks(blocks)
        if self.pinned_block_of:
            self.pinned_idle += sum(
                self.is_pinned[block.block_id] and block.ref_cnt == 1 for block in blocks
            )

    def cache_full_blocks(  # noqa: PLR0917 - vLLM's signature
        self,
        request: Any,
        blocks: list[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: list[bool] | None = None,
    ) -> None:
        """As vLLM's; owner and parent are recorded here, where both are known."""
        super().cache_full_blocks(
            request,
            blocks,
            num_cached_blocks,
            num_full_blocks,
            block_size,
            kv_cache_group_id,
            block_mask,
        )
        fresh = [
            (index, block)
            for index in range(num_cached_blocks, num_full_blocks)
            if (block := blocks[index]).block_hash is not None
            and not self.governor.knows(block.block_id)
        ]
        if not fresh:
            return
        tenant, *group = self.owners_of(request)
        public = self._public_tokens(request) // block_size
        parent = blocks[num_cached_blocks - 1].block_id if num_cached_blocks else None
        for owner, part in (
            (group[0] if group else tenant, [b for index, b in fresh if index < public]),
            (tenant, [b for index, b in fresh if index >= public]),
        ):
            self._admit(part, parent, owner)
            parent = part[-1].block_id if part else parent
        if self.pins.reserved:
            self._pin([b for _, b in fresh if self.pins.wants(get_block_hash(b.block_hash))])

    def owners_of(self, request: Any) -> tuple[int, ...]:
        """The tenant that a request is charged to, and its group if it begins with its prefix."""
        numbers = self.governor.owners
        tenant = numbers.number(request.cache_salt)
        group = None if self.library is None else self.library.share_of(request).group_salt
        return (tenant,) if group is None else (tenant, numbers.number(group))

    def _public_tokens(self, request: Any) -> int:
        return 0 if self.library is None else self.library.share_of(request).boundary

    def _admit(self, blocks: Sequence[KVCacheBlock], parent: int | None, owner: int) -> None:
        keys = [block.block_hash for block in blocks]
        numbers = [block.block_id for block in blocks]
        if self.chained and blocks:
            self.governor.admit(numbers, keys, parent, owner)
        elif blocks:
            for number, key in zip(numbers, keys, strict=True):
                self.governor.admit([number], [key], None, owner)

    def reset_prefix_cache(self) -> bool:
        """As vLLM's; pins do not stand in its way, and stay wished for."""
        running = self.num_gpu_blocks - 1 - self.get_num_free_blocks() - self.pinned_idle
        if running:
            return bool(super().reset_prefix_cache())
        self._unpin(list(self.pinned_block_of.values()))
        done = bool(super().reset_prefix_cache())
        if done:
            self.governor.reset()
            self.free_block_queue.restart()
        return done

    def get_usage(self) -> float:
        """As vLLM's: blocks of running requests, so without pins that nobody uses."""
        blocks = self.num_gpu_blocks - 1
        return 1.0 - (self.get_num_free_blocks() + self.pinned_idle) / blocks if blocks else 0.0

    def _remove_cached_block_hashes(self, block: KVCacheBlock) -> list[Any]:
        return self._empty(block, "invalid")

    # Pins.

    def pin_resident(self, wish: Wish) -> None:
        """Pin what is cached of a wish; the rest is pinned when it is cached."""
        self._pin([block for key in wish.keys if (block := self._find(key)) is not None])

    def unpin_unwanted(self, wish: Wish) -> int:
        """Give back the blocks of a wish that no active wish wants; returns how many."""
        gone = [
            self.pinned_block_of[key]
            for key in reversed(wish.keys)
            if key in self.pinned_block_of and not self.pins.wants(key)
        ]
        self._unpin(gone)
        return len(gone)

    def resident(self, keys: Sequence[BlockHash]) -> int:
        """How many leading blocks of a prefix are cached."""
        for position, key in enumerate(keys):
            if self._find(key) is None:
                return position
        return len(keys)

    def _count_hit(self, name: str) -> None:
        self.governor.counters["prefix_hits", name] += 1
        hot = self.pins.hit(name, self.governor.now())
        if hot is not None:
            self.pin_resident(hot)

    def _find(self, key: BlockHash) -> KVCacheBlock | None:
        found = super().get_cached_block(key, [0])
        return found[0] if found else None

    def _pin(self, blocks: Sequence[KVCacheBlock]) -> None:
        for block in blocks:
            key = get_block_hash(block.block_hash)
            if key in self.pinned_block_of:
                continue
            if block.ref_cnt == 0:
                self.pinned_idle += 1
            super().touch([block])
            self.governor.hold([block.block_id], hit=False)
            self.pinned_block_of[key] = block
            self.is_pinned[block.block_id] = 1

    def _unpin(self, blocks: Sequence[KVCacheBlock]) -> None:
        for block in blocks:
            self._forget_pin(block)
        super().free_blocks(blocks)

    def _forget_pin(self, block: KVCacheBlock) -> None:
        self.pins_lost += 1
        del self.pinned_block_of[get_block_hash(block.block_hash)]
        self.is_pinned[block.block_id] = 0
        self.pinned_idle -= block.ref_cnt == 1

    def _use_pins(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Pinned blocks that nobody used are used now."""
        if self.pinned_block_of:
            self.pinned_idle -= sum(
                self.is_pinned[block.block_id] and block.ref_cnt == 1 for block in blocks
            )

    # Contents that go without being chosen.

    def _is_governed(self, block: KVCacheBlock) -> bool:
        return not block.is_null and self.governor.knows(block.block_id)

    def empty_behind(self, hashes: Sequence[BlockHash]) -> None:
        """A block was too old: so is what hangs on it, which nobody finds any more."""
        self.found_stale = False
        behind = [block for key in hashes if (block := self._find(key)) is not None]
        for block in reversed(behind):
            if block.ref_cnt == 0:
                self._emit_block_removed_events(self._empty(block, "ttl"))

    def purge(self, owners: Collection[int]) -> int:
        """Empty the blocks of these owners, so that nobody finds them; returns how many.

        A block that a running request reads stays in its hands, and has no content for others.
        """
        doomed = [
            block
            for block in self.blocks
            if self._is_governed(block) and self.governor.owner(block.block_id) in owners
        ]
        for block in doomed:
            self._emit_block_removed_events(self._empty(block, "purged"))
        return len(doomed)

    def _empty(self, block: KVCacheBlock, reason: str) -> list[Any]:
        number = block.block_id
        known, pinned = self._is_governed(block), self.is_pinned[number]
        idle = block.ref_cnt == 0
        if pinned:
            self._forget_pin(block)
        removed: list[Any] = super()._remove_cached_block_hashes(block)
        if known:
            self.governor.drop(number, reason)
            if idle:
                self.free_block_queue.emptied(block)
        if pinned:
            super().free_blocks([block])
        return removed
