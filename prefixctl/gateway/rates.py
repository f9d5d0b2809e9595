"""The rate of a tenant: a bucket that holds a minute's worth and refills steadily.

It is kept as one number, the time at which it would be full again (a generic cell rate
algorithm), so that a shared table needs eight bytes for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MINUTE_SECONDS = 60.0
_EPSILON_SECONDS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What came of asking for units.

    Attributes:
        full_at: When the bucket is full again, in seconds of the clock.
        wait_seconds: How long until the units are there; 0 if they were taken.
    """

    full_at: float
    wait_seconds: float = 0.0


def take(full_at: float, now: float, *, units: float, per_minute: int) -> Taken:
    """Take units from a bucket, if they are there.

    More units than the bucket holds are given when it is full, and leave it in debt: the work
    of one request cannot be split.

    Args:
        full_at: When the bucket is full again.
        now: The time, in seconds of the same clock.
        units: How many.
        per_minute: How many it holds, and gets back in a minute.
    """
    each = MINUTE_SECONDS / per_minute
    busy = max(full_at - now, 0.0)
    wait = busy + min(units, per_minute) * each - MINUTE_SECONDS
    if wait > _EPSILON_SECONDS:
        return Taken(full_at=full_at, wait_seconds=wait)
    return Taken(full_at=now + busy + units * each)


def give_back(full_at: float, *, units: float, per_minute: int) -> float:
    """When a bucket is full again after units were given back; negative units are taken."""
    return full_at - units * MINUTE_SECONDS / per_minute


def retry_after(wait_seconds: float) -> int:
    """Whole seconds to wait, for the header of that name."""
    return max(math.ceil(wait_seconds), 1)
