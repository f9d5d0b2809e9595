"""One block in several stores, a part for each rank: there as a whole or not at all.

On one host vLLM's ranks write into one row, which is one file. Where every rank keeps a store of
its own (pipeline stages on several hosts) this is the protocol: the parts first, each read back
and verified, then a marker that names the checksum of every part. A reader begins with the marker,
so what it names is served and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from prefixctl.tiers.block import MissCause, checksum
from prefixctl.tiers.store import BlockStore
from prefixctl.tiers.write import Place

VERSION_BYTES = 16
SUM_BYTES = 16


def marker_bytes(ranks: int) -> int:
    """The size of a marker's body."""
    return VERSION_BYTES + ranks * SUM_BYTES


class RankedBlocks:
    """Blocks with one part in the store of each rank, and markers in one more store."""

    def __init__(self, ranks: Sequence[BlockStore], markers: BlockStore, *, version: str) -> None:
        """Use opened stores.

        Args:
            ranks: One for each rank, in order.
            markers: A store whose blocks have `marker_bytes` bytes.
            version: What writers and readers must agree on, for example the prompt's version.

        Raises:
            ValueError: If the marker's store has blocks of another size.
        """
        if markers.block_bytes != marker_bytes(len(ranks)):
            raise ValueError(f"markers of {len(ranks)} ranks have {marker_bytes(len(ranks))} bytes")
        self._ranks = tuple(ranks)
        self._markers = markers
        self._version = hashlib.blake2b(version.encode(), digest_size=VERSION_BYTES).digest()

    def put(self, place: Place, parts: Sequence[bytes | memoryview]) -> bool:
        """Store all parts and announce the block, or leave nothing of it.

        True says that all of it lay on the disks at the end: a full store may have evicted a part
        meanwhile. Parts of an earlier try are replaced: they may be of another version.
        """
        sums = b"".join(checksum(part) for part in parts)
        announced = self._version + sums
        if self._announced(place.key) == announced and self._is_whole(place.key):
            return True
        self.discard(place.key)
        for store, part in zip(self._ranks, parts, strict=True):
            if not store.put(place, part):
                self.discard(place.key)
                return False
        if not self._markers.put(place, announced) or not self._is_whole(place.key):
            self.discard(place.key)
            return False
        return True

    def load(self, key: bytes, into: Sequence[memoryview]) -> MissCause | None:
        """Read all parts, verified; None if they are one announced block."""
        announced = self._announced(key)
        if announced is None:
            return MissCause.ABSENT
        if announced[:VERSION_BYTES] != self._version:
            return MissCause.FOREIGN
        for rank, (store, part) in enumerate(zip(self._ranks, into, strict=True)):
            cause = store.load(key, part)
            start = VERSION_BYTES + rank * SUM_BYTES
            if cause is None and checksum(part) != announced[start : start + SUM_BYTES]:
                cause = MissCause.FOREIGN
            if cause is not None:
                self.discard(key)
                return cause
        return None

    def discard(self, key: bytes) -> None:
        """Take the announcement back first, then remove the parts."""
        self._markers.discard(key)
        for store in self._ranks:
            store.discard(key)

    def _is_whole(self, key: bytes) -> bool:
        return all(store.is_there(key) for store in (*self._ranks, self._markers))

    def _announced(self, key: bytes) -> bytes | None:
        body = bytearray(self._markers.block_bytes)
        if self._markers.load(key, memoryview(body)) is not None:
            return None
        return bytes(body)
