"""Reading blocks and headers from files that may hold anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path

from prefixctl.tiers.block import (
    HEADER_BYTES,
    BadBlockError,
    Header,
    MissCause,
    checksum,
    footprint_bytes,
    unpack,
)
from prefixctl.tiers.files import File, check_way, look, open_file, space_of
from prefixctl.tiers.folder import BLOCK_SUFFIX
from prefixctl.tiers.keyring import TAG_BYTES, KeyRing

READERS = 8
"""Threads that read headers: a cold disk answers several at once."""
BATCH = 512
PASSING = frozenset({errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})
"""Errors that say nothing about the file."""


def read_block(
    path: Path, material: bytes, key: bytes, into: memoryview, keyring: KeyRing | None
) -> tuple[Header, float]:
    """Read a whole block and verify that it is the one that was asked for.

    Args:
        path: Its file.
        material: Digest of the material it must have.
        key: The key it must have.
        into: Where the KV bytes go.
        keyring: The keys, if blocks are encrypted here.

    Returns:
        The header, and when the block was last used.

    Raises:
        BadBlockError: If it must not be served.
        OSError: If the file cannot be read.
    """
    descriptor, status = open_file(path)
    try:
        check_way(path)
        head = bytearray(HEADER_BYTES)
        if keyring is None:
            stored: memoryview = into
            got = os.preadv(descriptor, [head, into], 0)
        else:
            buffer = bytearray(min(max(status.st_size - HEADER_BYTES, 0), len(into) + TAG_BYTES))
            stored = memoryview(buffer)
            got = os.preadv(descriptor, [head, buffer], 0)
    finally:
        os.close(descriptor)
    header = unpack(head)
    if header.material != material or header.key != key or header.body_bytes != len(into):
        raise BadBlockError(MissCause.FOREIGN)
    if (header.nonce is None) != (keyring is None):
        raise BadBlockError(MissCause.FOREIGN, useless=False)
    size = HEADER_BYTES + header.stored_bytes
    if status.st_size != size or got != size or checksum(stored) != header.body_sum:
        raise BadBlockError(MissCause.CHECKSUM)
    if keyring is not None:
        into[:] = keyring.decrypt(header, stored)
    return header, status.st_mtime


def _ignored(path: str) -> None:
    """It is found when somebody asks for it."""


def read_headers(
    files: Iterable[File],
    material: bytes | None,
    file_bytes: int | None,
    *,
    unseen: Callable[[str], object] = _ignored,
) -> tuple[list[tuple[Header, float]], list[str]]:
    """The headers of blocks with the time of their last use, and the files that are none.

    A file that cannot be read counts as none; one that has gone is in neither list.

    Args:
        files: Path, disk space and last use.
        material: What they must be of, None for any.
        file_bytes: What their size must be, None for any.
        unseen: Told of files that could not be looked at for now: they are in neither list.
    """
    todo = iter(files)
    batches = iter(lambda: list(islice(todo, BATCH)), [])

    def read(batch: list[File]) -> list[tuple[str, float, Header | None]]:
        kept = []
        for path, _, used in batch:
            try:
                kept.append((path, used, _read_header(path, material, file_bytes)))
            except OSError as exc:
                if exc.errno not in PASSING:
                    kept.append((path, used, None))
                elif exc.errno != errno.ENOENT:
                    unseen(path)
        return kept

    found: list[tuple[Header, float]] = []
    damaged: list[str] = []
    with ThreadPoolExecutor(READERS, thread_name_prefix="prefixctl-tier-scan") as pool:
        for batch in pool.map(read, batches):
            for path, used, header in batch:
                if header is None:
                    damaged.append(path)
                else:
                    found.append((header, used))
    return found, damaged


def find_headers(
    paths: Iterable[Path], material: bytes, file_bytes: int
) -> list[tuple[Header, float]]:
    """The sound ones among files that may not be there; see `read_headers`."""
    files = []
    for path in paths:
        with suppress(OSError):
            status = look(path)
            files.append((str(path), space_of(status), status.st_mtime))
    return read_headers(files, material, file_bytes)[0] if files else []


def _read_header(path: str, material: bytes | None, file_bytes: int | None) -> Header | None:
    descriptor, status = open_file(path)
    try:
        data = os.pread(descriptor, HEADER_BYTES, 0)
    finally:
        os.close(descriptor)
    size = status.st_size
    try:
        header = unpack(data)
    except BadBlockError:
        return None
    whole = size == HEADER_BYTES + header.stored_bytes
    right_place = path.endswith(f"/{header.key.hex()}{BLOCK_SUFFIX}")
    ours = material is None or header.material == material
    fits = file_bytes is None or footprint_bytes(size) == footprint_bytes(file_bytes)
    return header if whole and right_place and ours and fits else None
