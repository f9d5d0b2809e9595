"""A shadow of LRU that a learning policy must not fall behind."""

from __future__ import annotations

from collections import deque

MARGIN = 0.1
DEVIATIONS = 2.5
MEMORY = 2.0
BUDGET = 0.002
BUDGET_MEMORY = 64.0
FIRST_PENALTY = 4.0
FORGIVING = 0.125


class Rival:
    """What LRU would hold, known from times of last use alone, and who is ahead.

    LRU with room for n blocks holds the n that were used last, so a found block would have been
    found by LRU as well if its last use is not older than a bound, and the bound moves on with
    what is used: O(1) for each block, without a second cache. When the policy falls behind by
    more than chance explains, the order becomes LRU's for a while, twice as long each time,
    shorter again while it keeps up. The idea is that of Subramanian et al., "Adaptive caches"
    (MICRO 2006); times are counted in blocks asked for, in units of the capacity.

    Behind is: lately (half forgotten after `MEMORY` capacities) by `DEVIATIONS` standard
    deviations of a walk with the steps seen, or by `MARGIN` of the capacity if that is less; or
    in the long run by that and `BUDGET` of all blocks asked for, so that many small losses
    cannot add up.

    Attributes:
        leads: LRU is ahead: follow it.
    """

    __slots__ = (
        "_asked", "_balance", "_bound", "_capacity", "_lead", "_most", "_penalty", "_span",
        "_times", "_total", "_until", "_used", "_variance", "leads",
    )  # fmt: skip

    def __init__(self, capacity: int) -> None:
        self._capacity = max(capacity, 1)
        self._used: dict[int, int] = {}
        self._times: deque[int] = deque()
        self._total = 0
        self._bound = 0
        self._asked = 0
        self._lead = 0.0
        self._penalty = FIRST_PENALTY * self._capacity
        self._until = 0.0
        self._balance = 0.0
        self._span = 0.0
        self._most = MARGIN * self._capacity
        self._variance = 0.0
        self.leads = False

    def use(self, time: int, blocks: int) -> None:
        """So many blocks were last used at this time, which is the newest one."""
        if time in self._used:
            self._used[time] += blocks
        else:
            self._used[time] = blocks
            self._times.append(time)
        self._total += blocks
        while self._total - self._used[self._times[0]] >= self._capacity:
            self._total -= self._used.pop(self._times.popleft())
            self._bound = self._times[0]

    def holds(self, last_use: int) -> bool:
        """Whether LRU would still hold a block that was last used then."""
        return last_use >= self._bound

    def reuse(self, last_use: int, blocks: int) -> None:
        """Blocks that were last used then are used again: forget the old time."""
        if last_use >= self._bound and last_use in self._used:
            self._used[last_use] -= blocks
            self._total -= blocks

    def score(self, asked: int, found: int, found_by_lru: int) -> None:
        """Compare the two on blocks that were asked for."""
        capacity, ahead = self._capacity, found - found_by_lru
        self._asked += asked
        decay = 0.5 ** (asked / (MEMORY * capacity))
        slow = decay ** (MEMORY / BUDGET_MEMORY)
        self._balance = self._balance * slow + ahead
        self._span = self._span * slow + asked
        if self.leads:
            if self._asked >= self._until:
                self.leads = False
                self._lead = 0.0
            return
        self._variance = self._variance * decay + ahead * ahead
        margin = min(DEVIATIONS * self._variance**0.5, self._most)
        self._lead = min(self._lead * decay + ahead, self._most)
        self._penalty = max(self._penalty * decay**FORGIVING, FIRST_PENALTY * capacity)
        if self._lead < -margin or self._balance < -margin - BUDGET * self._span:
            self.leads = True
            self._until = self._asked + self._penalty
            self._penalty *= 2
