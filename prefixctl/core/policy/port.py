"""The seam between a pool of KV blocks and the policy that says which idle block goes first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol


class EvictionPolicy(Protocol):
    """What a pool tells its policy, and the one thing it asks.

    Blocks are the pool's own slots, small integers from 0. A key names the content of a block
    together with all content before it (an engine's block hash, a trace's id), so that a policy
    can know content again that has left. A cached block is in use or idle; only idle ones are
    evicted. The same five calls fit the simulator and vLLM's block pool: `cache_full_blocks`,
    `touch`, `free_blocks`, `get_new_blocks` and whatever empties a block.
    """

    def admit(
        self,
        blocks: Sequence[int],
        keys: Sequence[Hashable],
        parent: int | None = None,
        owner: int = 0,
    ) -> None:
        """Full blocks became cached, in use.

        Args:
            blocks: Consecutive blocks of one request, first the one nearest to the root.
            keys: Their contents.
            parent: The cached block before the first, None at the root.
            owner: Who pays for them; see `shares`.
        """

    def hold(self, blocks: Sequence[int], *, hit: bool = True) -> None:
        """Cached blocks are taken into use, root first: idle ones are no longer evictable.

        Args:
            blocks: The blocks; some may be in use already.
            hit: A request found them (one call for each request); False for a pin.
        """

    def free(self, blocks: Sequence[int]) -> None:
        """Nobody uses these cached blocks any more; the tail of a request comes first."""

    def evict(self, count: int) -> list[int]:
        """Choose idle blocks and forget them; fewer than asked for only if there are no more."""

    def drop(self, blocks: Sequence[int]) -> None:
        """Cached blocks were emptied for another reason; deeper ones come first."""


class Foreseeing(Protocol):
    """A policy of the simulator that is told of a request before the request is served."""

    def foresee(self, keys: Sequence[Hashable], next_uses: Sequence[int]) -> None:
        """What the request will ask for, and when each block will be asked for again.

        Args:
            keys: The request's blocks, root first.
            next_uses: For each the number of the next request that asks for it, or a number
                above all requests.
        """
