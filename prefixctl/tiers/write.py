"""A block on its way to the disk: where it belongs, written whole and read back."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prefixctl.errors import InputError
from prefixctl.tiers.block import (
    HEADER_BYTES,
    MOST_DEPTH,
    MOST_KEY_BYTES,
    MOST_LABEL_BYTES,
    NO_OWNER,
    Header,
    checksum,
)
from prefixctl.tiers.keyring import KeyRing


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a block belongs.

    Attributes:
        key: The engine's key.
        parent: The key before it, empty at the root.
        depth: Blocks before it.
        owner: Tag of who pays for it.
        label: The version it belongs to.
    """

    key: bytes
    parent: bytes = b""
    depth: int = 0
    owner: bytes = NO_OWNER
    label: str = ""

    def header(
        self, *, material: bytes, body_bytes: int, stored_bytes: int, created: float
    ) -> Header:
        """The header of its block, still without a checksum; the arguments are the header's."""
        return Header(
            material=material,
            key=self.key,
            body_bytes=body_bytes,
            stored_bytes=stored_bytes,
            created=created,
            parent=self.parent,
            depth=self.depth,
            owner=self.owner,
            label=self.label,
        )

    def check(self) -> None:
        """Raise ValueError if keys, depth or label do not fit into a header."""
        if not 0 < len(self.key) <= MOST_KEY_BYTES or len(self.parent) > MOST_KEY_BYTES:
            raise ValueError(f"keys have 1 to {MOST_KEY_BYTES} bytes")
        if not 0 <= self.depth <= MOST_DEPTH:
            raise ValueError(f"a block has 0 to {MOST_DEPTH:,} blocks before it")
        if len(self.label.encode()) > MOST_LABEL_BYTES:
            raise ValueError(f"a label has at most {MOST_LABEL_BYTES} bytes")


def encrypted(
    header: Header, body: bytes | memoryview, keyring: KeyRing | None
) -> tuple[Header, bytes | memoryview | None]:
    """Header and bytes as they are stored; no bytes if there is no key for the owner."""
    if keyring is None:
        return header, body
    try:
        keyring.refresh()
        nonce, stored = keyring.encrypt(header, body)
    except (InputError, KeyError):
        return header, None
    return replace(header, nonce=nonce), stored


def write_block(descriptor: int, header: Header, stored: bytes | memoryview) -> None:
    """Write header and bytes, and read the bytes back before anybody is told of them.

    The bytes come back from the kernel's memory, as a rule: that finds a write that went wrong on
    its way there. What the disk makes of them the checksum finds when they are loaded.

    Raises:
        OSError: If the disk fails, is full, or gives back something else.
    """
    _write_all(descriptor, [header.pack(), stored])
    _verify(descriptor, header)


def _write_all(descriptor: int, parts: Sequence[bytes | memoryview]) -> None:
    size = sum(len(part) for part in parts)
    written = os.pwritev(descriptor, parts, 0)
    if written != size:
        data = b"".join(parts)
        while written < size:
            written += os.pwrite(descriptor, memoryview(data)[written:], written)


def _verify(descriptor: int, header: Header) -> None:
    stored = bytearray(header.stored_bytes)
    got = os.preadv(descriptor, [stored], HEADER_BYTES)
    if got != header.stored_bytes or checksum(stored) != header.body_sum:
        raise OSError(errno.EIO, "what was written reads differently")
