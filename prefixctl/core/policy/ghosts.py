"""What is remembered of blocks that have left."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class Ghosts:
    """A bounded memory of evicted contents, the oldest forgotten first; O(1) for each."""

    __slots__ = ("_limit", "_notes")

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, 1)
        self._notes: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._notes)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._notes

    def add(self, key: Hashable, first: int = 0, second: int = 0) -> None:
        """Remember a content with two numbers."""
        notes = self._notes
        notes[key] = (first, second)
        notes.move_to_end(key)
        if len(notes) > self._limit:
            notes.popitem(last=False)

    def take(self, key: Hashable) -> tuple[int, int] | None:
        """The two numbers of a content that is back, and forget it; None if it is not known."""
        return self._notes.pop(key, None)
