"""The folder that several processes share: its total, its writers, its half-written files.

```
DIR/                 mode 0700, files 0600
  total              bytes of all blocks, changed under its lock only
  retired            one version label a line
  writers/ID         what a process stores, locked by it as long as it lives
  temporary/ID.n     what the writer ID has not finished
  MATERIAL/          one for each model and layout
    about.json       what it is, and when it was first seen
    xx/KEY.kv        one file for each block
```

The rule for processes: under the lock of `total` space is added to it before there is a file, and
taken off after a file is gone. So the bound holds for all of them together, and a process that is
killed between the two can only make the total too large; `recount` sets it right. Locks are the
kernel's (flock), so a killed process holds none; the folder must lie on a local file system.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from prefixctl.errors import InputError
from prefixctl.tiers.block import footprint_bytes
from prefixctl.tiers.files import (
    FILE_MODE,
    File,
    entries,
    file_size,
    files_in,
    private_folder,
    write_privately,
)
from prefixctl.tiers.writers import Writer, writers

BLOCK_SUFFIX = ".kv"
ABOUT = "about.json"
SHORT_NAME = 16
_TOTAL = struct.Struct("<qq")
"""The bytes of all blocks, and those of all that were ever added."""


class TierFolder:
    """A tier's folder, to look at: nothing is changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._retired = path / "retired"
        self._temporary = path / "temporary"

    def materials(self) -> list[str]:
        """The folders of all models and layouts, the one that was seen first in front."""
        found = []
        for entry in entries(self.path):
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

    def files(self, material: str | None = None) -> Iterator[File]:
        """Every block; without a material those of all, and unfinished ones."""
        for folder in self.block_folders() if material is None else [material]:
            for bucket in entries(self.path / folder):
                if bucket.is_dir(follow_symlinks=False):
                    yield from files_in(bucket.path)
        if material is None:
            yield from self.unfinished()

    def unfinished(self) -> Iterator[File]:
        """What is being written."""
        return files_in(self._temporary)

    def writers(self) -> list[Writer | None]:
        """The processes that have opened the folder; None for each that was killed since."""
        return [writer for _, writer in writers(self.path / "writers")]

    def retired(self) -> frozenset[str]:
        """Labels of versions whose blocks go first."""
        try:
            return frozenset(self._retired.read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return frozenset()

    def block_folders(self) -> list[str]:
        """The folders of all models and layouts, also of those that do not say what they are."""
        return [
            entry.name
            for entry in entries(self.path)
            if len(entry.name) == SHORT_NAME and entry.is_dir(follow_symlinks=False)
        ]


class TierDirectory(TierFolder):
    """A tier's folder, opened by a process that writes to it."""

    def __init__(self, path: Path) -> None:
        """Open or make the folder; nothing is counted or removed, see `recount`.

        Raises:
            InputError: If the folder cannot be used, or is open to other users and not ours.
        """
        super().__init__(path)
        self.id = secrets.token_hex(8)
        self._threads = Lock()
        self._serial = 0
        self._introduced: dict[Path, str] = {}
        try:
            private_folder(path)
            for name in ("writers", "temporary"):
                private_folder(path / name)
            self._total = os.open(path / "total", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            with self.locked():
                self._writer = self._register()
        except OSError as exc:
            raise InputError(
                f"the tier's folder cannot be used: {exc.strerror}",
                path=str(path),
                hint="give a folder on a local disk that this user may write",
            ) from exc

    def recount(self, see: Callable[[str, File], object]) -> None:
        """Remove what dead writers left, and set the total right.

        The lock is not held while the folder is read. Unfinished files are counted first, so that
        one that is put in its place meanwhile counts twice rather than not at all; what is added
        meanwhile is added. So the new total may be too large, if there is much to do, and never
        too small.

        Args:
            see: Told of every finished block, with the name of its material's folder.
        """
        with self.locked():
            self._clean()
            before = self._counts()
        unfinished = sum(size for _, size, _ in self.unfinished())
        counted = unfinished
        for material in self.block_folders():
            for file in self.files(material):
                counted += file[1]
                see(material, file)
        with self.locked():
            total, added = now = self._counts()
            quiet = now == before and not unfinished
            self._write_counts(counted if quiet else min(total, counted + added - before[1]), added)

    def close(self) -> None:
        """Let go of the folder; unfinished files are removed."""
        with self.locked():
            for path, size, _ in list(self.unfinished()):
                if Path(path).name.startswith(f"{self.id}."):
                    Path(path).unlink(missing_ok=True)
                    self.add(-size)
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
        return self._counts()[0]

    def add(self, size: int) -> None:
        """Change the total; the caller holds the lock."""
        total, added = self._counts()
        self._write_counts(max(total + size, 0), added + max(size, 0))

    def reserve(self, size: int) -> tuple[int, Path]:
        """A temporary file of that size, without disk space yet; the caller holds the lock.

        The space is in the total before the file is there. `allocate` takes it on the disk,
        without the lock.

        Raises:
            OSError: If the disk is full (ENOSPC, EDQUOT) or fails.
        """
        self._serial += 1
        path = self._temporary / f"{self.id}.{self._serial}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.add(footprint_bytes(size))
        try:
            descriptor = os.open(path, flags, FILE_MODE)
            try:
                os.ftruncate(descriptor, size)
            except OSError:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
        except OSError:
            self.add(-footprint_bytes(size))
            raise
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
                private_folder(final.parent)
                self._describe(final.parent.parent)
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

    def introduce(
        self, material: str, facts: dict[str, Any], now: float, max_bytes: int = 0
    ) -> Path:
        """Make the folder of a model and layout, younger than all others if it is new.

        Other processes see from now on that this one stores it, within that bound.
        """
        folder = self.path / material
        private_folder(folder)
        with self.locked():
            about = self.about(material)
            if about is None:
                others = [self.about(name) or {} for name in self.materials()]
                youngest = max((o.get("created", 0.0) for o in others), default=0.0)
                about = {"created": max(now, youngest + 1.0), **facts}
            self._introduced[folder] = json.dumps(about, indent=2, sort_keys=True)
            self._describe(folder)
            Writer(id=self.id, material=material, max_bytes=max_bytes).write(self._writer)
        return folder

    def _describe(self, folder: Path) -> None:
        """See that a model's folder says what it is, also if it was removed by hand."""
        text = self._introduced.get(folder)
        if text is not None and not (folder / ABOUT).exists():
            write_privately(folder / ABOUT, text)

    def retire(self, label: str, *, undo: bool = False) -> None:
        """Let the blocks of a version go first from now on, or no longer."""
        with self.locked():
            labels = self.retired() - {label} if undo else self.retired() | {label}
            lines = "".join(f"{each}\n" for each in sorted(labels))
            write_privately(self._retired, lines)

    def _counts(self) -> tuple[int, int]:
        data = os.pread(self._total, _TOTAL.size, 0)
        return _TOTAL.unpack(data) if len(data) == _TOTAL.size else (0, 0)

    def _write_counts(self, total: int, added: int) -> None:
        os.pwrite(self._total, _TOTAL.pack(total, added), 0)

    def _register(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self.path / "writers" / self.id, flags, FILE_MODE)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def _clean(self) -> None:
        """Remove the unfinished files of writers that are gone; the total is not changed."""
        for path, writer in writers(self.path / "writers"):
            if writer is None:
                path.unlink(missing_ok=True)
        alive = {entry.name for entry in entries(self.path / "writers")}
        for entry in list(entries(self._temporary)):
            if entry.name.split(".")[0] not in alive:
                Path(entry.path).unlink(missing_ok=True)


def block_name(key: bytes) -> str:
    """Where a block lies in its material's folder."""
    name = key.hex()
    return f"{name[:2]}/{name}{BLOCK_SUFFIX}"
