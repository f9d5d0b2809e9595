"""One block as a file: a header that says whose it is, then the KV bytes."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace
from enum import StrEnum

import xxhash

FORMAT = 1
HEADER_BYTES = 512
PAGE_BYTES = 4096
MOST_KEY_BYTES = 64
MOST_LABEL_BYTES = 64
MOST_DEPTH = 2**32 - 1
MAGIC = b"PFXTIER\n"
NO_OWNER = bytes(16)
GROUP_BYTES = 4
"""The end of an engine's key, behind the block hash: the number of its cache group (vLLM 0.32)."""
ENCRYPTED = 1

_FIELDS = struct.Struct("<8sHHIQQd32sBB64s64s16s64s12s16s")
_SUM = struct.Struct("<Q")


class MissCause(StrEnum):
    """Why a block is not served; each is counted."""

    ABSENT = "absent"
    CHECKSUM = "checksum"
    FOREIGN = "foreign"
    EXPIRED = "expired"
    UNREADABLE = "unreadable"


class BadBlockError(Exception):
    """A file that must not be served; caught by the store, which counts the cause.

    Attributes:
        cause: Why not.
        useless: Whether the file is of no use to anybody who may share the folder.
    """

    def __init__(self, cause: MissCause, *, useless: bool = True) -> None:
        super().__init__(cause.value)
        self.cause = cause
        self.useless = useless


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What stands before the KV bytes of a block.

    Attributes:
        material: 32 bytes that name model, layout and types; see `BlockStore`.
        key: The engine's key of the block; names its content and all content before it.
        parent: The key of the block before it, empty at the root.
        body_bytes: KV bytes as the engine sees them.
        stored_bytes: Bytes behind the header; more than the body's if they are encrypted.
        created: When it was written, in seconds since 1970.
        depth: Blocks before it in the prefix.
        owner: Tag of the tenant or group that pays for it, `NO_OWNER` for none.
        label: The version it belongs to, as ``support-agent@3``; may be empty.
        nonce: Of the encryption; None for plain bytes.
        body_sum: XXH3-128 of the stored bytes.
    """

    material: bytes
    key: bytes
    body_bytes: int
    stored_bytes: int
    created: float
    parent: bytes = b""
    depth: int = 0
    owner: bytes = NO_OWNER
    label: str = ""
    nonce: bytes | None = None
    body_sum: bytes = bytes(16)

    @property
    def file_bytes(self) -> int:
        """The size of the whole file."""
        return HEADER_BYTES + self.stored_bytes

    def sealed(self, stored: bytes | memoryview) -> Header:
        """The same header with the checksum of the bytes that follow it."""
        return replace(self, body_sum=checksum(stored))

    def pack(self) -> bytes:
        """`HEADER_BYTES` bytes; the last eight are the XXH3-64 of the rest."""
        label = self.label.encode()
        fields = _FIELDS.pack(
            MAGIC,
            FORMAT,
            0 if self.nonce is None else ENCRYPTED,
            self.depth,
            self.body_bytes,
            self.stored_bytes,
            self.created,
            self.material,
            len(self.key),
            len(self.parent),
            self.key,
            self.parent,
            self.owner,
            label,
            self.nonce or bytes(12),
            self.body_sum,
        )
        text = fields.ljust(HEADER_BYTES - _SUM.size, b"\0")
        return text + _SUM.pack(xxhash.xxh3_64_intdigest(text))

    def authenticated(self) -> bytes:
        """What encryption binds the bytes to: the fields that say what the block is."""
        return self.material + self.key + self.owner + _SUM.pack(self.body_bytes)


def unpack(data: bytes | bytearray | memoryview) -> Header:
    """Read a header.

    Raises:
        BadBlockError: ``checksum`` if it is cut off or changed, ``foreign`` if it is sound but of
            another format.
    """
    text = bytes(data[:HEADER_BYTES])
    if len(text) < HEADER_BYTES:
        raise BadBlockError(MissCause.CHECKSUM)
    if xxhash.xxh3_64_intdigest(text[: -_SUM.size]) != _SUM.unpack(text[-_SUM.size :])[0]:
        raise BadBlockError(MissCause.CHECKSUM)
    (magic, version, flags, depth, body, stored, created, material, key_bytes, parent_bytes, key,
     parent, owner, label, nonce, body_sum) = _FIELDS.unpack_from(text)  # fmt: skip
    if magic != MAGIC or version != FORMAT:
        raise BadBlockError(MissCause.FOREIGN)
    return Header(
        material=material,
        key=key[:key_bytes],
        parent=parent[:parent_bytes],
        body_bytes=body,
        stored_bytes=stored,
        created=created,
        depth=depth,
        owner=owner,
        label=label.rstrip(b"\0").decode(errors="replace"),
        nonce=nonce if flags & ENCRYPTED else None,
        body_sum=body_sum,
    )


def checksum(data: bytes | bytearray | memoryview) -> bytes:
    """XXH3-128: finds damage, at the speed of memory. It is no proof against a forger."""
    return xxhash.xxh3_128_digest(data)


def owner_tag(name: str | None) -> bytes:
    """16 bytes that stand for a tenant or group, so that no file carries its name."""
    if name is None:
        return NO_OWNER
    return hashlib.blake2b(name.encode(), digest_size=16, person=b"prefixctl-owner").digest()


def footprint_bytes(file_bytes: int) -> int:
    """Disk space of a file: whole pages."""
    return -(-file_bytes // PAGE_BYTES) * PAGE_BYTES
