"""Files and folders of a tier: private, whole or not there, listed while others change them."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from prefixctl.errors import InputError
from prefixctl.tiers.block import footprint_bytes

FOLDER_MODE = 0o700
FILE_MODE = 0o600
File = tuple[str, int, float]
"""The path of a block, its disk space, and when it was last used."""


def file_size(path: Path) -> int | None:
    """The size of a file, None if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def write_privately(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a small file whole or not at all, readable by its owner only.

    With `durable` it is on the disk when this returns, and its name in the folder too.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, FILE_MODE)
    try:
        try:
            data = memoryview(text.encode())
            while data:
                data = data[os.write(descriptor, data) :]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_folder(path: Path) -> None:
    """Make a folder that is ours alone, or close one that was open.

    Raises:
        InputError: If it is open to other users and not ours.
    """
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    status = path.stat()
    if stat.S_IMODE(status.st_mode) & 0o077:
        if status.st_uid != os.geteuid():
            raise InputError(
                "the tier's folder is open to other users",
                path=str(path),
                hint="chmod 700, or give a folder of this user",
            )
        path.chmod(FOLDER_MODE)


def allocate(descriptor: int, size: int) -> None:
    """Take the space of a reserved file, so that a full disk shows before anything is written.

    Raises:
        OSError: If the disk is full (ENOSPC, EDQUOT) or fails.
    """
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as exc:
        if exc.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            raise


def entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """What lies in a folder, nothing if there is none."""
    try:
        with os.scandir(folder) as found:
            yield from found
    except (FileNotFoundError, NotADirectoryError):
        return


def files_in(folder: Path | str) -> Iterator[File]:
    """The files of a folder; those that go meanwhile are left out."""
    for entry in entries(folder):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield entry.path, footprint_bytes(status.st_size), status.st_mtime
