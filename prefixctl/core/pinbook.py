"""Which prefixes are to stay: wishes by name, the blocks that they want, and when they are hot."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from prefixctl.ids import BlockHash

HOUR_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A prefix that somebody wants to stay.

    Attributes:
        name: What it is called: prompt, version and namespace.
        keys: The hashes of its blocks, root first.
        auto_hits: Pin it by itself at this many hits within an hour, and unpin it when it has
            less than half of them; None to pin it at once and for good.
    """

    name: str
    keys: tuple[BlockHash, ...] = field(repr=False)
    auto_hits: int | None = None

    @property
    def version(self) -> str:
        """Prompt and version, without the namespace."""
        return self.name.partition("#")[0]


@dataclass(slots=True)
class Entry:
    """How a wish stands.

    Attributes:
        wish: The wish.
        active: Its blocks are to be pinned.
        hits: Requests that found it whole.
        last_hit: When the last one did, in seconds.
        recent: Times of the last ones, as many as it takes to be hot.
    """

    wish: Wish
    active: bool = False
    hits: int = 0
    last_hit: float | None = None
    recent: deque[float] = field(default_factory=deque)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinAnswer:
    """What became of a wish.

    Attributes:
        active: Its blocks are pinned from now on, as soon as they are cached.
        reason: Why not, if they are not.
    """

    active: bool
    reason: str = ""


class PinBook:
    """Wishes and the room that is reserved for them.

    A block that two wishes share is reserved once. A wish that does not fit as a whole is
    refused, so what is pinned never depends on which block came first.

    Attributes:
        cap: Blocks that may be reserved at most.
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._entries: dict[str, Entry] = {}
        self._wanted: Counter[BlockHash] = Counter()
        self._ends: dict[BlockHash, list[str]] = {}

    @property
    def reserved(self) -> int:
        """Blocks that active wishes want."""
        return len(self._wanted)

    def wants(self, key: BlockHash) -> bool:
        """Whether an active wish wants a block."""
        return key in self._wanted

    def find(self, name: str) -> Entry | None:
        """What is known of a wish; not to be changed."""
        return self._entries.get(name)

    def add(self, wish: Wish) -> PinAnswer:
        """Enter a wish, in place of one of the same name.

        The answer of a replaced wish that is refused leaves the old one as it was.
        """
        if not wish.keys:
            return PinAnswer(active=False, reason="it has no full block")
        old = self._entries.get(wish.name)
        if old is not None:
            self._take_out(old)
        entry = Entry(wish)
        if wish.auto_hits is None:
            answer = self._fits(wish)
            if not answer.active:
                if old is not None:
                    self._put_in(old)
                return answer
            entry.active = True
        else:
            answer = PinAnswer(
                active=False, reason=f"it will be pinned at {wish.auto_hits:,} hits within an hour"
            )
        if old is not None and old.wish.keys == wish.keys:
            entry.hits, entry.last_hit = old.hits, old.last_hit
        self._put_in(entry)
        return answer

    def remove(self, name: str) -> Wish | None:
        """Forget a wish; its blocks are wanted no more, unless another wish wants them."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        self._take_out(entry)
        return entry.wish

    def ending(self, key: BlockHash) -> Sequence[str]:
        """The wishes whose last block this is: who finds it has found them whole."""
        return self._ends.get(key, ())

    def hit(self, name: str, now: float) -> Wish | None:
        """A request found a prefix whole; returns it if it became hot by that.

        Args:
            name: Of the wish.
            now: The time in seconds.
        """
        entry = self._entries[name]
        entry.hits += 1
        entry.last_hit = now
        wanted = entry.wish.auto_hits
        if wanted is None:
            return None
        entry.recent.append(now)
        if len(entry.recent) > wanted:
            entry.recent.popleft()
        full = len(entry.recent) >= wanted and now - entry.recent[0] <= HOUR_SECONDS
        if not full or entry.active or not self._fits(entry.wish).active:
            return None
        self._activate(entry)
        return entry.wish

    def cool(self, now: float) -> list[Wish]:
        """Wishes that were hot and are no more: their blocks are wanted no longer."""
        cold = []
        for entry in self._entries.values():
            wanted = entry.wish.auto_hits
            if wanted is None:
                continue
            while entry.recent and now - entry.recent[0] > HOUR_SECONDS:
                entry.recent.popleft()
            if entry.active and len(entry.recent) * 2 < wanted:
                self._deactivate(entry)
                cold.append(entry.wish)
        return cold

    def _fits(self, wish: Wish) -> PinAnswer:
        fresh = sum(key not in self._wanted for key in dict.fromkeys(wish.keys))
        left = self.cap - self.reserved
        if fresh <= left:
            return PinAnswer(active=True)
        return PinAnswer(
            active=False,
            reason=f"it needs {fresh:,} more blocks, and {max(left, 0):,} of the cap of "
            f"{self.cap:,} pinned blocks are left; unpin something, or raise "
            "prefix_cache.pins.share or the pool",
        )

    def _put_in(self, entry: Entry) -> None:
        self._entries[entry.wish.name] = entry
        self._ends.setdefault(entry.wish.keys[-1], []).append(entry.wish.name)
        if entry.active:
            self._activate(entry)

    def _take_out(self, entry: Entry) -> None:
        if entry.active:
            self._deactivate(entry)
            entry.active = True
        del self._entries[entry.wish.name]
        names = self._ends[entry.wish.keys[-1]]
        names.remove(entry.wish.name)
        if not names:
            del self._ends[entry.wish.keys[-1]]

    def _activate(self, entry: Entry) -> None:
        entry.active = True
        self._wanted.update(dict.fromkeys(entry.wish.keys, 1))

    def _deactivate(self, entry: Entry) -> None:
        entry.active = False
        self._wanted.subtract(dict.fromkeys(entry.wish.keys, 1))
        for key in entry.wish.keys:
            if self._wanted[key] <= 0:
                del self._wanted[key]
