"""Files and folders of a tier: private, whole or not there, listed while others change them."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prefixctl.errors import InputError
from prefixctl.tiers.block import footprint_bytes

FOLDER_MODE = 0o700
FILE_MODE = 0o600
MOST_NOTE_BYTES = 16 * 2**20
LOCK_SECONDS = 3.0
"""How long to wait for a lock: who holds it does so for milliseconds, unless it was stopped."""
MOST_POLL_SECONDS = 0.001
File = tuple[str, int, float]
"""The path of a block, its disk space, and when it was last used."""
STUCK = (PermissionError, IsADirectoryError, NotADirectoryError)
"""Errors of one file that say nothing about the others."""


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Make errors of the disk one that tells an operator what is wrong, and where."""
    try:
        yield
    except OSError as exc:
        hint = "give a folder on a local disk that is this user's own"
        if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
            hint = "make room on the disk"
        elif exc.errno == errno.ETIMEDOUT:
            hint = "a process that was stopped keeps it; let that go on, or end it"
        elif exc.filename is not None and Path(os.fsdecode(exc.filename)) != path:
            hint = "remove what is there, or make it this user's own (chmod 700)"
        raise InputError(
            f"the tier's folder cannot be used: {exc.strerror}",
            path=str(path) if exc.filename is None else os.fsdecode(exc.filename),
            hint=hint,
        ) from exc


def check_way(path: Path | str) -> None:
    """See that bucket and model's folder above a file are folders and no links.

    Raises:
        FileNotFoundError: If one is not there.
        NotADirectoryError: If one is something else.
    """
    bucket = os.fspath(path).rpartition("/")[0]
    for folder in (bucket.rpartition("/")[0], bucket):
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)


def look(path: Path | str) -> os.stat_result:
    """What lies in a file's place; no link is followed, nor one in the place of a folder.

    Raises:
        FileNotFoundError: If there is nothing.
        OSError: If that cannot be told.
    """
    path = os.fspath(path)
    status = os.lstat(path)
    check_way(path)
    return status


def open_file(path: Path | str) -> tuple[int, os.stat_result]:
    """Open for reading what may be anything; whatever is no plain file is an error.

    Raises:
        OSError: If there is no such file, or it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", os.fspath(path))
    return descriptor, status


def read_note(path: Path) -> bytes:
    """The content of a small file.

    Raises:
        OSError: If there is none, or it is too large.
    """
    descriptor, status = open_file(path)
    try:
        if status.st_size > MOST_NOTE_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return os.pread(descriptor, status.st_size, 0)
    finally:
        os.close(descriptor)


def space_of(status: os.stat_result) -> int:
    """The disk space of what lies somewhere, as it is counted: only plain files have any."""
    return footprint_bytes(status.st_size) if stat.S_ISREG(status.st_mode) else 0


def lock_file(descriptor: int) -> None:
    """Take a file's lock, which excludes all who ask for it.

    Raises:
        TimeoutError: If somebody keeps it for `LOCK_SECONDS`.
    """
    deadline, pause = None, MOST_POLL_SECONDS / 16
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            deadline = now + LOCK_SECONDS if deadline is None else deadline
            if now >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"locked by {_holder(descriptor)}") from None
        time.sleep(pause)
        pause = min(2 * pause, MOST_POLL_SECONDS)


def _holder(descriptor: int) -> str:
    """Who holds the lock of a file, as far as the kernel tells."""
    inode = os.fstat(descriptor).st_ino
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                return f"process {fields[4]}"
    return "another process"


def write_privately(path: Path, text: str, *, durable: bool = False) -> None:
    """Write a small file whole or not at all, readable by its owner only.

    With `durable` it is on the disk when this returns, and its name in the folder too.
    """
    temporary = path.with_name(temporary_name(path, secrets.token_hex(4)))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, FILE_MODE)
    try:
        try:
            _belong(descriptor, path)
            data = memoryview(text.encode())
            while data:
                data = data[os.write(descriptor, data) :]
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def temporary_name(path: Path, token: str) -> str:
    """What a small file is called until it is whole."""
    return f".{path.name}.tmp-{token}"


def _belong(descriptor: int, path: Path) -> None:
    """What root writes belongs to whom the file or its folder does: the server must read it."""
    if not os.geteuid():
        status = (path if path.exists() else path.parent).stat()
        os.fchown(descriptor, status.st_uid, status.st_gid)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def private_folder(path: Path) -> None:
    """Make a folder that is ours alone, or close one that was open.

    Raises:
        PermissionError: If it is open to other users and not ours.
        OSError: If it cannot be made, or something else is there.
    """
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "a link is in the place of a folder", str(path))
    if stat.S_IMODE(status.st_mode) & 0o077:
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is open to other users", str(path))
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


def entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """What lies in a folder, nothing if there is none."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def files_below(folder: Path | str, depth: int = 0) -> Iterator[File]:
    """What lies so many folders deep, or in the place of a folder on the way there.

    No link is followed; what goes meanwhile is left out.
    """
    for entry in entries(folder):
        if depth and entry.is_dir(follow_symlinks=False):
            yield from files_below(entry.path, depth - 1)
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield entry.path, space_of(status), status.st_mtime


def in_place_of(before: int, descriptor: int) -> int:
    """A descriptor under the number of an earlier one, which other threads may be using."""
    if before < 0:
        return descriptor
    os.dup2(descriptor, before, inheritable=False)
    os.close(descriptor)
    return before
