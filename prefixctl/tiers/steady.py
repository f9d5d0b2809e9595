"""A clock for decisions that destroy something."""

from __future__ import annotations

import time
from collections.abc import Callable


def boot_seconds() -> float:
    """Seconds that the machine has been up, in suspension too; nobody sets it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyTime:
    """Seconds since 1970, that never run ahead of what has really passed since the start.

    If the clock is set forward by mistake nothing looks older than it is. If it is set back, time
    is what the clock says.
    """

    def __init__(
        self, clock: Callable[[], float], elapsed: Callable[[], float] = boot_seconds
    ) -> None:
        self._clock = clock
        self._elapsed = elapsed
        self._ahead = clock() - elapsed()

    def __call__(self) -> float:
        """The time now."""
        return min(self._clock(), self._elapsed() + self._ahead)
