"""What a tier below the device keeps: one order for host memory and disk, and keys to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prefixctl.core.policy.blocks import Blocks
from prefixctl.core.policy.expiry import Expiry
from prefixctl.core.policy.leaves import LeafPolicy
from prefixctl.core.policy.make import POLICIES
from prefixctl.core.policy.pins import Pinned, PinOutcome
from prefixctl.core.policy.shares import Shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a tier chooses what to keep.

    Attributes:
        policy: Name of a policy that governs; see `prefixctl.core.policy.make`.
        depth_cost: What one block of depth adds to the cost of a block at the root.
        ttl_seconds: How long a block lives that nobody uses; None for no limit.
        shares: Whether owners share the space out evenly.
        pinned_share: Share of the blocks that may be pinned.
    """

    policy: str = "lru"
    depth_cost: float = 0.0
    ttl_seconds: float | None = 86_400.0
    shares: bool = False
    pinned_share: float = 0.2


class TierOrder:
    """The blocks of a tier by slot, in the order that rules give them.

    Attributes:
        blocks: Who hangs on whom.
        leaves: The policy, or one for each owner.
        expiry: It, with the age of blocks.
        pins: The whole order: it, but for what is pinned.
    """

    def __init__(self, rules: Rules, slots: int, clock: Callable[[], float]) -> None:
        """Nothing is cached at first; the clock counts seconds."""
        kind = POLICIES[rules.policy]
        self.blocks = Blocks(slots)
        self.leaves: LeafPolicy | Shared = (
            Shared(self.blocks, lambda b: kind.make(b, rules.depth_cost))
            if rules.shares
            else kind.make(self.blocks, rules.depth_cost)
        )
        ttl = float("inf") if rules.ttl_seconds is None else rules.ttl_seconds
        self.expiry = Expiry(self.leaves, size=slots, ttl_seconds=ttl, clock=clock)
        self.pins = Pinned(self.expiry, size=slots, cap=int(slots * rules.pinned_share))


class KeptKeys:
    """Pins by key: of blocks that are there, and of those that will come.

    Attributes:
        pins: The order in which they are kept; another one after a reset.
        wanted: What is to be kept, the root first.
    """

    pins: Pinned

    def __init__(self, slot_of: Callable[[bytes], int | None]) -> None:
        """Nothing is wanted at first.

        Args:
            slot_of: The slot of a key, None if its block is not there.
        """
        self._slot_of = slot_of
        self.wanted: dict[bytes, None] = {}

    def want(self, keys: Iterable[bytes]) -> None:
        """Keep these and no others, the root first."""
        wanted = dict.fromkeys(keys)
        self.unpin([key for key in self.wanted if key not in wanted])
        self.wanted = wanted
        self.pin(list(wanted))

    def came(self, key: bytes, slot: int) -> None:
        """A block was entered: keep it if it was wanted."""
        if key in self.wanted:
            self.pins.pin([slot])

    def pin(self, keys: Iterable[bytes]) -> PinOutcome:
        """Keep those that are there, the root first, up to the cap."""
        return self.pins.pin(self._slots(keys))

    def unpin(self, keys: Iterable[bytes]) -> int:
        """Let pinned blocks go again; returns how many were pinned."""
        return self.pins.unpin(self._slots(keys)[::-1])

    def _slots(self, keys: Iterable[bytes]) -> Sequence[int]:
        found = (self._slot_of(key) for key in keys)
        return [slot for slot in found if slot is not None]
