"""A pool of KV blocks with vLLM's rules: references, blank blocks first, hits by content."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from prefixctl.core.policy.expiry import Expiry
from prefixctl.core.policy.pins import Pinned
from prefixctl.core.policy.port import EvictionPolicy


class Pool:
    """Slots that hold block contents, found by a dense content id.

    Blocks without content (never used, or a partial tail) are handed out before the policy is
    asked for a victim, as in vLLM, whose free queue has them in front.

    Attributes:
        available: Blocks that a request could have now: blank, or idle and not pinned.
        evicted: Contents that made room so far.
        expired: Contents that were found too old.
    """

    def __init__(
        self,
        capacity: int,
        policy: EvictionPolicy,
        contents: int,
        *,
        pins: Pinned | None = None,
        expiry: Expiry | None = None,
    ) -> None:
        """Start empty.

        Args:
            capacity: Blocks.
            policy: Chooses victims, decorations included.
            contents: Content ids run from 0 to this number.
            pins: The decoration of `policy` that pins, if any.
            expiry: The decoration of `policy` that knows ages, if any.
        """
        self.capacity = capacity
        self.policy = policy
        self.evicted = 0
        self.expired = 0
        self._pins = pins
        self._expiry = expiry
        self._slot_of: list[int | None] = [None] * contents
        self._content: list[int | None] = [None] * capacity
        self._references = [0] * capacity
        self._blank = list(range(capacity - 1, -1, -1))
        self._idle = 0
        self._twins: dict[int, list[int]] = {}
        self._private = count(-1, -1)

    @property
    def available(self) -> int:
        """Blocks that a request could have now."""
        withheld = 0 if self._pins is None else self._pins.withheld
        return len(self._blank) + self._idle - withheld

    @property
    def blank(self) -> int:
        """Blocks without content."""
        return len(self._blank)

    @property
    def in_use(self) -> int:
        """Blocks that requests hold now."""
        return self.capacity - len(self._blank) - self._idle

    def room_beside(self, slots: Sequence[int]) -> int:
        """Blocks that a request could have besides these cached ones."""
        references, pins = self._references, self._pins
        ours = sum(
            not references[slot] and (pins is None or not pins.is_pinned(slot)) for slot in slots
        )
        return self.available - ours

    @property
    def cached(self) -> int:
        """Blocks with a content."""
        return sum(content is not None for content in self._content)

    def holds(self, content: int) -> bool:
        """Whether a content is cached."""
        return self._slot_of[content] is not None

    def match(self, chain: Sequence[int]) -> int:
        """How many leading blocks of a chain are cached."""
        slot_of = self._slot_of
        for position, content in enumerate(chain):
            if slot_of[content] is None:
                return position
        return len(chain)

    def find(self, chain: Sequence[int]) -> list[int]:
        """The slots of the longest cached prefix; what is too old is emptied on the way."""
        slot_of = self._slot_of
        slots: list[int] = []
        for content in chain:
            slot = slot_of[content]
            if slot is None:
                break
            slots.append(slot)
        if self._expiry is not None:
            fresh = self._expiry.fresh(slots)
            if fresh < len(slots):
                self._expire(slots[fresh:])
                del slots[fresh:]
        return slots

    def hold(self, slots: Sequence[int]) -> None:
        """A request uses cached blocks, root first."""
        references = self._references
        for slot in slots:
            if not references[slot]:
                self._idle -= 1
            references[slot] += 1
        self.policy.hold(slots)

    def allocate(self, number: int) -> list[int]:
        """Blank blocks for a request, evicting what has to go; at most `available`."""
        blank = self._blank
        slots = [blank.pop() for _ in range(min(number, len(blank)))]
        if len(slots) < number:
            slots += self._evict(number - len(slots))
        references = self._references
        for slot in slots:
            references[slot] = 1
        return slots

    def store(
        self, slots: Sequence[int], chain: Sequence[int], parent: int | None, owner: int = 0
    ) -> None:
        """Allocated blocks are full: from now on they are found.

        Args:
            slots: Consecutive blocks of one request.
            chain: Their contents.
            parent: The slot before them.
            owner: Who pays for them.
        """
        slot_of, contents = self._slot_of, self._content
        for slot, content in zip(slots, chain, strict=True):
            contents[slot] = content
            if content >= 0:
                if slot_of[content] is None:
                    slot_of[content] = slot
                else:
                    self._twins.setdefault(content, []).append(slot)
        self.policy.admit(slots, chain, parent, owner)

    def store_private(self, slots: Sequence[int], parent: int | None, owner: int = 0) -> None:
        """The same for contents that no request of the trace asks for: generated text."""
        keys = [next(self._private) for _ in slots]
        for slot, key in zip(slots, keys, strict=True):
            self._content[slot] = key
        self.policy.admit(slots, keys, parent, owner)

    def release(self, slots: Sequence[int]) -> None:
        """A request is done with blocks; its tail comes first."""
        references, contents = self._references, self._content
        cached: list[int] = []
        for slot in slots:
            references[slot] -= 1
            if not references[slot]:
                if contents[slot] is None:
                    self._blank.append(slot)
                else:
                    cached.append(slot)
        self._idle += len(cached)
        self.policy.free(cached)

    def shrink(self, most: int) -> None:
        """Evict until no more than so many blocks are cached or in use."""
        over = self.capacity - len(self._blank) - most
        if over > 0:
            self._blank += self._evict(over)

    def _evict(self, number: int) -> list[int]:
        victims = self.policy.evict(number)
        for slot in victims:
            self._forget(slot)
        self._idle -= len(victims)
        self.evicted += len(victims)
        return victims

    def _expire(self, slots: Sequence[int]) -> None:
        stale = [slot for slot in reversed(slots) if not self._references[slot]]
        self.policy.drop(stale)
        for slot in stale:
            self._forget(slot)
        self._idle -= len(stale)
        self._blank += stale
        self.expired += len(stale)

    def _forget(self, slot: int) -> None:
        content = self._content[slot]
        self._content[slot] = None
        if content is None or content < 0:
            return
        twins = self._twins.get(content)
        if self._slot_of[content] == slot:
            self._slot_of[content] = twins.pop(0) if twins else None
        elif twins:
            twins.remove(slot)
        if twins == []:
            del self._twins[content]
