"""What one process knows of the blocks of its model, and which of them goes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from sys import intern

from prefixctl.core.policy.pins import PinOutcome
from prefixctl.core.policy.tier import KeptKeys, Rules, TierOrder
from prefixctl.tiers.block import NO_OWNER, Header

Found = tuple[Header, float]
"""A block on the disk, and when it was last used."""
LOOK_AGAIN_SECONDS = 2.0
"""How often at most something that had to stay is looked at again."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """A block that is on the disk as far as this process knows.

    Attributes:
        key: Its key.
        slot: Its number for the policy.
        used: When it was last used, in seconds since 1970.
        noted: When that was last written to the file, for other processes to see.
        label: Its version.
        owner: Its owner's tag.
        depth: Blocks before it in the prefix.
        parent: The key of the block before it.
    """

    key: bytes
    slot: int
    used: float
    noted: float
    label: str
    owner: bytes
    depth: int
    parent: bytes

    @property
    def header(self) -> Header:
        """As much of its header as an index needs."""
        return Header(
            material=b"",
            key=self.key,
            parent=self.parent,
            body_bytes=0,
            stored_bytes=0,
            created=self.used,
            depth=self.depth,
            owner=self.owner,
            label=self.label,
        )


@dataclass(slots=True, kw_only=True)
class _Owner:
    """Who has blocks here, and the number by which the policy knows it."""

    tag: bytes
    number: int
    blocks: int = 0


class Index:
    """Blocks by key, ordered by a policy; not safe to use from several threads at once.

    A block may be entered before its parent: it stands as a root until that comes.

    Attributes:
        entries: The known blocks.
        oldest: No block was last used before that, but for those that `expire` has named.
    """

    def __init__(self, *, slots: int, rules: Rules, clock: Callable[[], float]) -> None:
        """Start empty.

        Args:
            slots: Blocks at most.
            rules: What to keep.
            clock: The time in seconds since 1970.
        """
        self._clock = clock
        self._rules = rules
        self._now: float | None = None
        self._kept = KeptKeys(self._slot_of)
        self._retiring: list[bytes] = []
        self._none_retired_at = -LOOK_AGAIN_SECONDS
        self._expiring: list[bytes] = []
        self._start(slots)

    def _start(self, slots: int) -> None:
        self._slots = slots
        self._fresh_slots = iter(range(slots))
        self._free_slots: list[int] = []
        self.entries: dict[bytes, Entry] = {}
        self.oldest = float("inf")
        self._keys: dict[int, bytes] = {}
        self._labels: dict[str, set[bytes]] = {}
        self._owners: dict[bytes, _Owner] = {}
        self._numbers = count(1)
        self._entering: set[bytes] = set()
        self._orphans: dict[bytes, set[bytes]] = {}
        order = TierOrder(self._rules, slots, self._time)
        self._blocks, self._expiry, self._policy = order.blocks, order.expiry, order.pins
        self._kept.pins = order.pins

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def pinned(self) -> int:
        """Blocks that no eviction may choose."""
        return self._policy.pinned

    def enlarge(self, slots: int) -> None:
        """Have that many slots at least; what the policy has learned is lost if there were less."""
        if slots <= self._slots:
            return
        entries = list(self.entries.values())
        pinned = [entry.key for entry in entries if self._policy.is_pinned(entry.slot)]
        self._start(slots)
        self.add_all([(entry.header, entry.used) for entry in entries])
        self.pin(pinned)

    def add(self, header: Header, used: float) -> None:
        """Enter a block that is on the disk, last used at that time."""
        if header.key not in self.entries and len(self.entries) < self._slots:
            self._release([self._enter(header, used)], used)

    def add_all(self, found: Sequence[Found]) -> None:
        """Enter blocks in any order, so that chains and the order of last use are right."""
        self.enter(by_depth(found))
        self.release(by_use(found))

    def enter(self, found: Iterable[Found]) -> None:
        """The first half of `add_all`: blocks `by_depth`, which cannot be chosen to go yet."""
        for header, used in found:
            if header.key not in self.entries and len(self.entries) < self._slots:
                self._enter(header, used)
                self._entering.add(header.key)

    def release(self, found: Iterable[Found]) -> None:
        """The second half: the same blocks `by_use`; those used since stay as they are."""
        for header, used in found:
            if header.key in self._entering:
                self._entering.discard(header.key)
                self._release([self.entries[header.key].slot], used)

    def _enter(self, header: Header, used: float) -> int:
        """Enter a block as in use; returns its slot."""
        key = header.key
        slot = self._free_slots.pop() if self._free_slots else next(self._fresh_slots)
        parent = self.entries.get(header.parent)
        owner = self._owners.get(header.owner)
        if owner is None:
            number = next(self._numbers) if header.owner != NO_OWNER else 0
            owner = self._owners[header.owner] = _Owner(tag=header.owner, number=number)
        owner.blocks += 1
        self.entries[key] = Entry(
            key=key,
            slot=slot,
            used=used,
            noted=used,
            label=intern(header.label),
            owner=owner.tag,
            depth=header.depth,
            parent=header.parent if parent is None else parent.key,
        )
        self.oldest = min(self.oldest, used)
        self._keys[slot] = key
        self._labels.setdefault(header.label, set()).add(key)
        keys: list[Hashable] = [key]
        self._policy.admit([slot], keys, None if parent is None else parent.slot, owner.number)
        self._blocks.depth[slot] = header.depth
        if parent is None and header.parent:
            self._orphans.setdefault(header.parent, set()).add(key)
        for child in self._orphans.pop(key, ()):
            self._blocks.adopt(self.entries[child].slot, slot)
        self._kept.came(key, slot)
        return slot

    def use(self, keys: Sequence[bytes]) -> None:
        """Blocks of one request were used, the root first."""
        known = [self.entries[key] for key in keys if key in self.entries]
        now = self._clock()
        for entry in known:
            entry.used = now
            self._entering.discard(entry.key)
            self._rejoin(entry)
        slots = [entry.slot for entry in known]
        self._policy.hold(slots)
        self._release(slots[::-1], now)

    def _rejoin(self, entry: Entry) -> None:
        """Put a block below its parent again that had left and has come back."""
        if entry.parent and self._blocks.above(entry.slot) is None:
            parent = self.entries.get(entry.parent)
            if parent is not None:
                self._blocks.adopt(entry.slot, parent.slot)

    def is_expired(self, key: bytes) -> bool:
        """Whether a known block was not used for too long."""
        entry = self.entries.get(key)
        return entry is not None and not self._expiry.fresh([entry.slot])

    def remove(self, key: bytes) -> Entry | None:
        """Forget a block for another reason than eviction."""
        entry = self.entries.get(key)
        if entry is not None:
            self._policy.drop([entry.slot])
            self._forget(entry)
        return entry

    def victim(self) -> Entry | None:
        """The block that goes next, forgotten; None if there is none that may go."""
        slots = self._policy.evict(1)
        if not slots:
            return None
        entry = self.entries[self._keys[slots[0]]]
        self._forget(entry)
        return entry

    def enter_again(self, entry: Entry, used: float) -> None:
        """Enter a victim again that was used by another process at that time."""
        self.add(entry.header, used)

    def all_entries(self) -> list[Entry]:
        """The known blocks, for `expired`, whose result `expire` takes."""
        self.oldest = float("inf")
        return list(self.entries.values())

    def expire(self, keys: Sequence[bytes], oldest: float) -> None:
        """These blocks have expired, and no other one was last used before that."""
        self._expiring = list(keys)
        self.oldest = min(self.oldest, oldest)

    def expired_victim(self, before: float) -> Entry | None:
        """A block that nobody has used since and `expire` has named, forgotten.

        A pinned one stays, and one on which others hang.
        """
        while self._expiring:
            entry = self.entries.get(self._expiring.pop())
            if entry is not None and entry.used < before and self._may_go(entry):
                return self.remove(entry.key)
        return None

    def retired_victim(self, labels: Iterable[str]) -> Entry | None:
        """The deepest block of a retired version, forgotten.

        A pinned one stays, and one on which a block of another version hangs.
        """
        waiting = {label for label in labels if self._labels.get(label)}
        if not self._retiring and waiting and self._may_look_for_retired():
            self._retiring = self._retire(waiting)
            if not self._retiring:
                self._none_retired_at = self._clock()
        while self._retiring:
            entry = self.entries.get(self._retiring.pop())
            if entry is not None and entry.label in waiting and self._may_go(entry):
                return self.remove(entry.key)
        return None

    def _may_go(self, entry: Entry) -> bool:
        return not self._policy.is_pinned(entry.slot) and not self._blocks.children[entry.slot]

    def _may_look_for_retired(self) -> bool:
        """Whether it is a while since all blocks of retired versions had to stay."""
        return not 0 <= self._clock() - self._none_retired_at < LOOK_AGAIN_SECONDS

    def _retire(self, labels: Iterable[str]) -> list[bytes]:
        """The blocks of these versions that may go one after the other, the last one first."""
        entries = [self.entries[key] for label in labels for key in self._labels[label]]
        gone: Counter[int | None] = Counter()
        going = []
        for entry in sorted(entries, key=lambda e: (e.depth, e.key), reverse=True):
            slot = entry.slot
            if not self._policy.is_pinned(slot) and self._blocks.children[slot] == gone[slot]:
                going.append(entry.key)
                gone[self._blocks.above(slot)] += 1
        return going[::-1]

    def want(self, keys: Iterable[bytes]) -> None:
        """Keep these blocks and no others, the root first: those that are known or will come."""
        self._kept.want(keys)

    def wanted(self) -> tuple[list[Entry], list[bytes]]:
        """The blocks that `want` keeps, and the keys of those that are not known."""
        known = [entry for key in self._kept.wanted if (entry := self.entries.get(key)) is not None]
        kept = [entry for entry in known if self._policy.is_pinned(entry.slot)]
        return kept, [key for key in self._kept.wanted if key not in self.entries]

    def pin(self, keys: Sequence[bytes]) -> PinOutcome:
        """Keep known blocks, the root first, up to the cap."""
        return self._kept.pin(keys)

    def unpin(self, keys: Sequence[bytes]) -> int:
        """Give pinned blocks back to the order."""
        return self._kept.unpin(keys)

    def _slot_of(self, key: bytes) -> int | None:
        entry = self.entries.get(key)
        return None if entry is None else entry.slot

    def _release(self, slots: Sequence[int], used: float) -> None:
        self._now = used
        try:
            self._policy.free(slots)
        finally:
            self._now = None

    def _time(self) -> float:
        return self._clock() if self._now is None else self._now

    def _forget(self, entry: Entry) -> None:
        del self.entries[entry.key]
        del self._keys[entry.slot]
        labelled = self._labels[entry.label]
        labelled.discard(entry.key)
        if not labelled:
            del self._labels[entry.label]
        owner = self._owners[entry.owner]
        owner.blocks -= 1
        if not owner.blocks:
            del self._owners[entry.owner]
        self._entering.discard(entry.key)
        siblings = self._orphans.get(entry.parent)
        if siblings is not None:
            siblings.discard(entry.key)
            if not siblings:
                del self._orphans[entry.parent]
        self._free_slots.append(entry.slot)


def by_depth(found: Iterable[Found]) -> list[Found]:
    """Parents before their children."""
    return sorted(found, key=lambda f: f[0].depth)


def by_use(found: Iterable[Found]) -> list[Found]:
    """What was not used for longest first, of a chain the tail."""
    return sorted(found, key=lambda f: (f[1], -f[0].depth))


def expired(entries: Iterable[Entry], before: float) -> tuple[list[bytes], float]:
    """The keys of blocks that were last used before a time, and the first use of all others.

    The last key goes first: what was not used for longest, of a chain the tail.
    """
    old, oldest = [], float("inf")
    for entry in entries:
        if entry.used < before:
            old.append(entry)
        else:
            oldest = min(oldest, entry.used)
    old.sort(key=lambda e: (e.used, -e.depth), reverse=True)
    return [entry.key for entry in old], oldest
