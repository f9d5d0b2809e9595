"""The folder that several processes share: its total, its writers, its half-written files.

```
DIR/                 mode 0700, files 0600
  total              bytes of all blocks, changed under its lock only
  retired            one version label a line
  writers/ID         locked by a process as long as it lives
  temporary/ID.n     what the writer ID has not finished
  MATERIAL/          one for each model and layout
    about.json       what it is, and when it was first seen
    xx/KEY.kv        one file for each block
```

The rule for processes: space is reserved under the lock of `total` before a byte is written and
given back under it after a file is gone, so the bound holds for all of them together, and a
process that is killed between the two can only make the total too large. The total is counted anew
whenever a process opens the folder. Locks are the kernel's (flock), so a killed process holds none;
the folder must lie on a local file system.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from prefixctl.errors import InputError
from prefixctl.tiers.block import footprint_bytes

BLOCK_SUFFIX = ".kv"
ABOUT = "about.json"
FOLDER_MODE = 0o700
FILE_MODE = 0o600
_TOTAL = struct.Struct("<q")
SHORT_NAME = 16


class TierFolder:
    """A tier's folder, to look at: nothing is locked or changed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def materials(self) -> list[str]:
        """The folders of all models and layouts, the one that was seen first in front."""
        found = []
        for entry in _entries(self.path):
            about = self.about(entry.name) if len(entry.name) == SHORT_NAME else None
            if about is not None:
                found.append((about.get("created", 0.0), entry.name))
        return [name for _, name in sorted(found)]

    def about(self, material: str) -> dict[str, Any] | None:
        """What a folder says of its model; None if it is no such folder."""
        try:
            about = json.loads((self.path / material / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return about if isinstance(about, dict) else None

    def block(self, material: str, key: bytes) -> Path:
        """Where a block lies."""
        return self.path / material / block_name(key)

    def files(self, material: str | None = None) -> Iterator[tuple[str, int, float]]:
        """Path, disk space and last use of every block; without a material also unfinished ones."""
        for folder in [self.path / material] if material else self._block_folders():
            for bucket in _entries(folder):
                if bucket.is_dir(follow_symlinks=False):
                    yield from _files(bucket.path)
        if material is None:
            yield from _files(self.path / "temporary")

    def retired(self) -> frozenset[str]:
        """Labels of versions whose blocks go first."""
        try:
            return frozenset((self.path / "retired").read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return frozenset()

    def _block_folders(self) -> list[Path]:
        return [
            Path(entry.path)
            for entry in _entries(self.path)
            if len(entry.name) == SHORT_NAME and entry.is_dir(follow_symlinks=False)
        ]


class TierDirectory(TierFolder):
    """A tier's folder, opened by a process that writes to it."""

    def __init__(self, path: Path) -> None:
        """Open or make the folder, remove what dead writers left, and count.

        Raises:
            InputError: If the folder cannot be used, or is open to other users and not ours.
        """
        super().__init__(path)
        self.id = secrets.token_hex(8)
        self._threads = Lock()
        self._serial = 0
        try:
            _private_folder(path)
            for name in ("writers", "temporary"):
                _private_folder(path / name)
            self._total = os.open(path / "total", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            with self.locked():
                self._writer = self._register()
                self._clean()
                self._listing = list(self.files())
                self._write_total(sum(size for _, size, _ in self._listing))
        except OSError as exc:
            raise InputError(
                f"the tier's folder cannot be used: {exc.strerror}",
                path=str(path),
                hint="give a folder on a local disk that this user may write",
            ) from exc

    def take_listing(self, material: str) -> list[tuple[str, int, float]]:
        """The blocks of a material as they were when the folder was opened; once only."""
        listing, self._listing = self._listing, []
        return [file for file in listing if file[0].startswith(f"{self.path / material}/")]

    def close(self) -> None:
        """Let go of the folder; unfinished files are removed."""
        self._remove_temporaries(self.id)
        with suppress(FileNotFoundError):
            (self.path / "writers" / self.id).unlink()
        os.close(self._writer)
        os.close(self._total)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other threads and processes that change the total."""
        with self._threads:
            fcntl.flock(self._total, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._total, fcntl.LOCK_UN)

    @property
    def total_bytes(self) -> int:
        """Bytes of all blocks of all processes, reserved ones included."""
        data = os.pread(self._total, _TOTAL.size, 0)
        return int(_TOTAL.unpack(data)[0]) if len(data) == _TOTAL.size else 0

    def add(self, size: int) -> None:
        """Change the total; the caller holds the lock."""
        self._write_total(max(self.total_bytes + size, 0))

    def reserve(self, size: int) -> tuple[int, Path]:
        """A temporary file of that size; the caller holds the lock.

        Raises:
            OSError: If the disk is full (ENOSPC, EDQUOT) or fails.
        """
        self._serial += 1
        path = self.path / "temporary" / f"{self.id}.{self._serial}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, FILE_MODE)
        try:
            _allocate(descriptor, size)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self.add(footprint_bytes(size))
        return descriptor, path

    def abandon(self, path: Path, size: int) -> None:
        """Remove a temporary file and give its space back."""
        with self.locked(), suppress(FileNotFoundError):
            path.unlink()
            self.add(-footprint_bytes(size))

    def commit(self, temporary: Path, final: Path, size: int, *, replace: bool) -> bool:
        """Put a finished file in its place.

        Args:
            temporary: From `reserve`.
            final: Where it goes.
            size: Its size.
            replace: Whether a file that is there already is known to be bad.

        Returns:
            False if another process was faster; its file stays.
        """
        with self.locked():
            there = file_size(final)
            if there is not None and not replace:
                temporary.unlink()
                self.add(-footprint_bytes(size))
                return False
            try:
                temporary.replace(final)
            except FileNotFoundError:
                _private_folder(final.parent)
                temporary.replace(final)
            if there is not None:
                self.add(-footprint_bytes(there))
            return True

    def remove(self, path: Path) -> int:
        """Remove a block's file; the caller holds the lock. Returns the space it gave back."""
        size = file_size(path)
        if size is None:
            return 0
        with suppress(FileNotFoundError):
            path.unlink()
            self.add(-footprint_bytes(size))
            return footprint_bytes(size)
        return 0

    def introduce(self, material: str, facts: dict[str, Any], now: float) -> Path:
        """Make the folder of a model and layout, younger than all others if it is new."""
        folder = self.path / material
        _private_folder(folder)
        with self.locked():
            if self.about(material) is None:
                others = [self.about(name) or {} for name in self.materials()]
                youngest = max((o.get("created", 0.0) for o in others), default=0.0)
                about = {"created": max(now, youngest + 1.0), **facts}
                write_privately(folder / ABOUT, json.dumps(about, indent=2, sort_keys=True))
        return folder

    def retire(self, label: str, *, undo: bool = False) -> None:
        """Let the blocks of a version go first from now on, or no longer."""
        with self.locked():
            labels = self.retired() - {label} if undo else self.retired() | {label}
            lines = "".join(f"{each}\n" for each in sorted(labels))
            write_privately(self.path / "retired", lines)

    def _write_total(self, total: int) -> None:
        os.pwrite(self._total, _TOTAL.pack(total), 0)

    def _register(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self.path / "writers" / self.id, flags, FILE_MODE)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def _clean(self) -> None:
        """Remove the unfinished files of writers that are gone."""
        for entry in list(_entries(self.path / "writers")):
            if entry.name != self.id and _is_free(entry.path):
                self._remove_temporaries(entry.name)
                Path(entry.path).unlink(missing_ok=True)
        alive = {entry.name for entry in _entries(self.path / "writers")}
        for entry in list(_entries(self.path / "temporary")):
            if entry.name.split(".")[0] not in alive:
                Path(entry.path).unlink(missing_ok=True)

    def _remove_temporaries(self, writer: str) -> None:
        for entry in list(_entries(self.path / "temporary")):
            if entry.name.startswith(f"{writer}."):
                Path(entry.path).unlink(missing_ok=True)


def block_name(key: bytes) -> str:
    """Where a block lies in its material's folder."""
    name = key.hex()
    return f"{name[:2]}/{name}{BLOCK_SUFFIX}"


def file_size(path: Path) -> int | None:
    """The size of a file, None if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def write_privately(path: Path, text: str) -> None:
    """Write a small file whole or not at all, readable by its owner only."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, FILE_MODE)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    temporary.replace(path)


def _private_folder(path: Path) -> None:
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


def _allocate(descriptor: int, size: int) -> None:
    """Reserve the space now, so that a full disk shows before anything is written."""
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as exc:
        if exc.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            raise
        os.ftruncate(descriptor, size)


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return


def _files(folder: Path | str) -> Iterator[tuple[str, int, float]]:
    for entry in _entries(folder):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            yield entry.path, footprint_bytes(status.st_size), status.st_mtime


def _is_free(path: str) -> bool:
    """Whether nobody holds the lock of a writer's file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
