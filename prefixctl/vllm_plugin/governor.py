"""What governs one engine's pool of blocks: the policy, owners, pins and counters.

It knows vLLM's blocks by their numbers and hashes only, so it runs and is tested without vLLM.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from prefixctl.core.governing import DeviceSettings
from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.expiry import Expiry
from prefixctl.core.policy.make import POLICIES, depth_cost
from prefixctl.core.policy.port import EvictionPolicy
from prefixctl.core.policy.shares import Shared
from prefixctl.core.tenancy import salt_pseudonym

FIRST_BLOCKS_KNOWN = 4096
MOST_OWNERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShape:
    """The pool that is governed.

    Attributes:
        blocks: Blocks that can be used: all but vLLM's null block, which has number 0.
        block_tokens: Tokens of a block.
        token_bytes: KV bytes of a token, all layers and ranks of this engine together.
        pin_cap: Blocks that may be pinned.
    """

    blocks: int
    block_tokens: int
    token_bytes: int
    pin_cap: int


class Owners:
    """Who pays for a block: a number for each salt, 0 for requests without one."""

    def __init__(self) -> None:
        self._number_of: dict[str, int] = {}
        self._salt_of: dict[int, str] = {}
        self._next = 1
        self.blocks: Counter[int] = Counter()

    def number(self, salt: str | None) -> int:
        """The number of a salt; forgets salts without blocks when there are too many."""
        if not salt:
            return 0
        known = self._number_of.get(salt)
        if known is not None:
            return known
        if len(self._number_of) >= MOST_OWNERS:
            self._forget_idle()
        number, self._next = self._next, self._next + 1
        self._number_of[salt] = number
        self._salt_of[number] = salt
        return number

    def pseudonym(self, number: int) -> str:
        """A stable name that does not reveal the salt."""
        salt = self._salt_of.get(number)
        if salt is None:
            return "unsalted" if number == 0 else "forgotten"
        return salt_pseudonym(salt)

    def numbers(self, pseudonyms: Collection[str]) -> set[int]:
        """The numbers of the salts with these pseudonyms."""
        salts = self._salt_of.items()
        return {number for number, salt in salts if salt_pseudonym(salt) in pseudonyms}

    def _forget_idle(self) -> None:
        for number, salt in list(self._salt_of.items()):
            if not self.blocks[number]:
                del self._salt_of[number], self._number_of[salt], self.blocks[number]


class Governor:
    """The policy stack over the slots of a pool, and what is known of each block.

    A slot is the number of a vLLM block less one: the null block is never governed.

    Attributes:
        settings: What was asked for.
        shape: The pool.
        owners: Who pays.
        counters: Events since the start, by name and label values.
    """

    def __init__(
        self, settings: DeviceSettings, shape: PoolShape, *, clock: Callable[[], float]
    ) -> None:
        self.settings = settings
        self.shape = shape
        self.owners = Owners()
        self.counters: Counter[tuple[str, ...]] = Counter()
        self._clock = clock
        self._owner_of = [0] * shape.blocks
        self._known = bytearray(shape.blocks)
        self._first_blocks: OrderedDict[int, int] = OrderedDict()
        self._expiry: Expiry | None = None
        self._policy = self._make()

    def _make(self) -> EvictionPolicy:
        settings, shape = self.settings, self.shape
        kind, cost = POLICIES[settings.policy], depth_cost(shape.block_tokens)
        blocks = Blocks(shape.blocks)
        policy: EvictionPolicy
        if settings.tenant_shares:
            policy = Shared(blocks, lambda shared: kind.make(shared, cost))
        else:
            policy = kind.make(blocks, cost)
        if settings.ttl_seconds is not None:
            policy = self._expiry = Expiry(
                policy, size=shape.blocks, ttl_seconds=settings.ttl_seconds, clock=self._clock
            )
        return policy

    def now(self) -> float:
        """The time in seconds."""
        return self._clock()

    def knows(self, block: int) -> bool:
        """Whether the policy orders a block: it has a content."""
        return bool(self._known[block - 1])

    def owner(self, block: int) -> int:
        """Who pays for a block."""
        return self._owner_of[block - 1]

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """Blocks are full and can be found from now on; see `EvictionPolicy.admit`."""
        slots = [block - 1 for block in blocks]
        for slot in slots:
            self._known[slot] = 1
            self._owner_of[slot] = owner
        self.owners.blocks[owner] += len(slots)
        above = None if parent is None or not self._known[parent - 1] else parent - 1
        self._policy.admit(slots, keys, above, owner)

    def hold(self, blocks: Sequence[int], *, hit: bool) -> None:
        """Cached blocks are taken into use, root first."""
        self._policy.hold([block - 1 for block in blocks], hit=hit)

    def free(self, blocks: Sequence[int]) -> None:
        """Nobody uses these cached blocks any more, the tail of a request first."""
        self._policy.free([block - 1 for block in blocks])

    def evict(self, count: int) -> list[int]:
        """Idle blocks that have to go, and forget them."""
        victims = self._policy.evict(count)
        for slot in victims:
            self._forget(slot)
        self.counters["evictions", "capacity"] += len(victims)
        return [slot + 1 for slot in victims]

    def drop(self, block: int, reason: str) -> None:
        """A block was emptied for another reason than want of room."""
        self._policy.drop([block - 1])
        self._forget(block - 1)
        self.counters["evictions", reason] += 1

    def is_fresh(self, block: int) -> bool:
        """Whether a block that was looked up is not too old."""
        return self._expiry is None or bool(self._expiry.fresh((block - 1,)))

    def reset(self) -> None:
        """All contents are gone."""
        self.counters["evictions", "reset"] += sum(self._known)
        self._known = bytearray(self.shape.blocks)
        self.owners.blocks.clear()
        self._policy = self._make()

    def see_hit(self, blocks: Sequence[int], owners: Sequence[int]) -> None:
        """A request uses blocks: they should be of its tenant, of its group, or nobody's."""
        owner_of, own = self._owner_of, {0, *owners}
        foreign = sum(owner_of[block - 1] not in own for block in blocks)
        if foreign:
            self.counters["cross_tenant_hits",] += 1
            self.counters["cross_tenant_hit_blocks",] += foreign

    def see_first_block(self, tokens: Sequence[int], owner: int) -> None:
        """Count a request that would have found another tenant's first block without salts."""
        content = hash(tuple(tokens))
        other = self._first_blocks.get(content)
        if other is not None and other != owner:
            self.counters["cross_tenant_attempts",] += 1
        if other is None and len(self._first_blocks) >= FIRST_BLOCKS_KNOWN:
            self._first_blocks.popitem(last=False)
        self._first_blocks[content] = owner
        self._first_blocks.move_to_end(content)

    def _forget(self, slot: int) -> None:
        self._known[slot] = 0
        self.owners.blocks[self._owner_of[slot]] -= 1
