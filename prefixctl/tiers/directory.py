"""The folder that several processes share: its total, its writers, its half-written files.

```
DIR/                 mode 0700, files 0600
  total              bytes of all blocks, changed under its lock only; counted again if damaged
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
kernel's (flock), so a killed process holds none; the folder must lie on a local file system. No
link below the folder is followed. Who gets the lock looks whether `total` is still the file that it
was and says something; if not it is made and counted again, before anything else happens.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import xxhash

from prefixctl.errors import InputError
from prefixctl.tiers import files
from prefixctl.tiers.block import footprint_bytes
from prefixctl.tiers.files import (
    FILE_MODE,
    File,
    check_way,
    entries,
    files_below,
    lock_file,
    look,
    private_folder,
    read_note,
    space_of,
    told,
    write_privately,
)
from prefixctl.tiers.writers import Writer, writers

BLOCK_SUFFIX = ".kv"
ABOUT = "about.json"
SHORT_NAME = 16
_HEX = re.compile(rf"[0-9a-f]{{{SHORT_NAME}}}")
"""Names of models' folders and of writers."""
LATEST_CREATED = 2.0**33
"""Seconds since 1970: what is said to be seen later (2242) was not."""
_TOTAL = struct.Struct("<qqq")
_SUM_BYTES = 8


class _Counts(NamedTuple):
    """What `total` says.

    Attributes:
        total: The bytes of all blocks.
        added: Those of all that were ever added.
        mended: How often it had to be counted again.
    """

    total: int
    added: int
    mended: int

    def pack(self) -> bytes:
        data = _TOTAL.pack(*self)
        return data + xxhash.xxh3_64_digest(data)


class TierFolder:
    """A tier's folder, to look at: nothing is changed."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self._retired = self.path / "retired"
        self._temporary = self.path / "temporary"

    def is_tier(self) -> bool:
        """Whether it is a tier's, also one whose `total` was removed."""
        if (self.path / "total").is_file():
            return True
        known = self.path / "writers"
        both = known.is_dir() and self._temporary.is_dir()
        return both and all(_HEX.fullmatch(entry.name) for entry in entries(known))

    def check_free(self) -> None:
        """See that a tier is here, or may be made here.

        Raises:
            InputError: If there is something else.
        """
        if self.is_tier():
            return
        half_made = {name for name in ("writers", "temporary") if not entries(self.path / name)}
        if {entry.name for entry in entries(self.path)} - {"lost+found"} - half_made:
            raise InputError(
                "the folder is not empty, and no tier",
                path=str(self.path),
                hint="give tiers.nvme.path a folder of its own",
            )

    def materials(self) -> list[str]:
        """The folders of all models and layouts, the one that was seen first in front."""
        abouts = {name: self.about(name) for name in self.block_folders()}
        found = ((about["created"], name) for name, about in abouts.items() if about is not None)
        return [name for _, name in sorted(found)]

    def about(self, material: str) -> dict[str, Any] | None:
        """What a folder says of its model; None if there is no such folder.

        Its time of creation is the folder's last change, if it does not say a possible one.
        """
        folder = self.path / material
        if folder.is_symlink() or not folder.is_dir():
            return None
        try:
            about = json.loads(_note_in(folder / ABOUT))
        except (ValueError, RecursionError):
            about = {}
        about = about if isinstance(about, dict) else {}
        created = about.get("created")
        if not isinstance(created, int | float) or not 0 <= created < LATEST_CREATED:
            created = _changed(folder)
        return {**about, "created": float(created)}

    def digest(self, material: str) -> bytes:
        """The digest of a model and layout; empty if its folder does not say it."""
        digest = (self.about(material) or {}).get("material")
        try:
            return bytes.fromhex(str(digest))
        except ValueError:
            return b""

    def block(self, material: str, key: bytes) -> Path:
        """Where a block lies."""
        return self.path / material / block_name(key)

    def files(self, material: str | None = None) -> Iterator[File]:
        """Every block; without a material those of all, and unfinished ones.

        Links, and whatever else is in the place of a block or of a folder, are among them.
        """
        for name in self.block_folders() if material is None else [material]:
            folder = self.path / name
            if folder.is_symlink():
                yield str(folder), 0, _changed(folder)
                continue
            about = str(folder / ABOUT)
            yield from (file for file in files_below(folder, 1) if not file[0].startswith(about))
        if material is None:
            yield from self.unfinished()

    def unfinished(self) -> Iterator[File]:
        """What is being written."""
        return files_below(self._temporary)

    def writers(self) -> list[Writer | None]:
        """The processes that have opened the folder; None for each that was killed since."""
        return [writer for _, writer in writers(self.path / "writers")]

    def retired(self) -> frozenset[str]:
        """Labels of versions whose blocks go first."""
        with suppress(OSError):
            return self._labels()
        return frozenset()

    def _labels(self) -> frozenset[str]:
        """A line that is no text is no label."""
        lines = []
        with suppress(FileNotFoundError):
            lines = read_note(self._retired).split(b"\n")
        texts = ((line, line.decode(errors="ignore")) for line in lines)
        return frozenset(text for line, text in texts if text and text.encode() == line)

    def block_folders(self) -> list[str]:
        """The folders of all models and layouts, also of those that do not say what they are.

        A link in the place of one is among them.
        """
        return [
            entry.name
            for entry in entries(self.path)
            if _HEX.fullmatch(entry.name)
            and (entry.is_symlink() or entry.is_dir(follow_symlinks=False))
        ]


class TierDirectory(TierFolder):
    """A tier's folder, opened by a process that writes to it."""

    def __init__(self, path: Path) -> None:
        """Open or make the folder; nothing is counted or removed, see `recount`.

        Raises:
            InputError: If the folder cannot be used, is none of a tier, or is open to other users
                and not ours.
        """
        super().__init__(path)
        self.id = secrets.token_hex(8)
        self._threads = Lock()
        self._serial = 0
        self._introduced: dict[Path, str] = {}
        self._abandoned: list[tuple[Path, int]] = []
        self._us = Writer(id=self.id)
        self._place = str(self.path / "total")
        self._total = self._writer = -1
        with ExitStack() as undo, told(path):
            undo.callback(self._let_go)
            self._open()
            with self.locked():
                self._register()
            undo.pop_all()

    def _open(self) -> None:
        """Make the folder if it is not there, and open what keeps its total.

        Raises:
            InputError: If the folder is somebody's who has no tier there.
            OSError: If it cannot be used.
        """
        self.check_free()
        for folder in (self.path, self.path / "writers", self._temporary):
            private_folder(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._total = _in_place_of(self._total, os.open(self._place, flags, FILE_MODE))
        self._locked_file = _identity(os.fstat(self._total))

    def _let_go(self) -> None:
        """Close what is open; nobody takes us for a writer any more."""
        opened = [descriptor for descriptor in (self._writer, self._total) if descriptor >= 0]
        self._writer = self._total = -1
        for descriptor in opened:
            os.close(descriptor)
        with suppress(OSError):
            (self.path / "writers" / self.id).unlink()

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
            self._appear()
            self._clean()
            before = self._counts()
        unfinished = sum(size for _, size, _ in self.unfinished())
        counted = unfinished
        for material in self.block_folders():
            for file in self.files(material):
                counted += file[1]
                see(material, file)
        with self.locked():
            now = self._counts()
            quiet = now == before and not unfinished
            total = counted if quiet else min(now.total, counted + now.added - before.added)
            if now.mended == before.mended:
                self._write_counts(now._replace(total=total))

    def close(self) -> None:
        """Let go of the folder; unfinished files are removed."""
        # Who cannot get the lock leaves them to the next one who counts.
        with suppress(OSError), self.locked():
            for path, size, _ in list(self.unfinished()):
                if Path(path).name.startswith(f"{self.id}."):
                    Path(path).unlink(missing_ok=True)
                    self.add(-size)
        self._let_go()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude all other threads and processes that change the total.

        Raises:
            TimeoutError: If somebody else keeps the lock.
            OSError: If the folder was removed and cannot be made again, or not be counted.
        """
        if not self._threads.acquire(timeout=files.LOCK_SECONDS):
            raise TimeoutError(errno.ETIMEDOUT, "locked by another thread of this process")
        try:
            if self._total < 0:
                raise OSError(errno.EBADF, "the folder was closed")
            try:
                self._take()
                yield
            finally:
                fcntl.flock(self._total, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def _take(self) -> None:
        """Lock `total`, which may be another file than it was, and see that it says something."""
        lock_file(self._total)
        if not self._is_in_place():
            self._take_again()
        if self._read_counts() is None:
            self._count()
        if self._abandoned:
            self._remove_abandoned()

    def _take_again(self) -> None:
        """Somebody has removed `total`, or all of the folder."""
        while not self._is_in_place():
            try:
                self._open()
            except InputError as exc:
                raise PermissionError(errno.EPERM, exc.message, exc.path) from exc
            lock_file(self._total)
        self._appear()

    def _remove_abandoned(self) -> None:
        while self._abandoned:
            path, size = self._abandoned.pop()
            with suppress(FileNotFoundError):
                path.unlink()
                self.add(-size)

    def _is_in_place(self) -> bool:
        """Whether `total` is still the file that is locked."""
        try:
            return _identity(os.lstat(self._place)) == self._locked_file
        except OSError:
            return False

    def _count(self) -> None:
        """Set the total right while nobody changes anything: it is not what it should be."""
        total = sum(size for _, size, _ in self.files())
        self._write_counts(_Counts(total, added=0, mended=secrets.randbits(62)))
        os.ftruncate(self._total, _TOTAL.size + _SUM_BYTES)

    @property
    def total_bytes(self) -> int:
        """Bytes of all blocks of all processes, reserved ones included."""
        return self._counts().total

    def add(self, size: int) -> None:
        """Change the total; the caller holds the lock."""
        total, added, mended = self._counts()
        if total + size < 0:
            self._count()
        else:
            self._write_counts(_Counts(total + size, added + max(size, 0), mended))

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
            except BaseException:
                os.close(descriptor)
                path.unlink(missing_ok=True)
                raise
        except BaseException:
            self.add(-footprint_bytes(size))
            with suppress(OSError):  # somebody may have removed it; the next one finds it
                private_folder(self._temporary)
            raise
        return descriptor, path

    def abandon(self, path: Path, size: int) -> None:
        """Remove a temporary file and give its space back, as soon as the lock is to be had."""
        self._abandoned.append((path, footprint_bytes(size)))
        with suppress(OSError), self.locked():
            pass

    def commit(self, temporary: Path, final: Path, size: int, *, replace: bool) -> bool:
        """Put a finished file in its place.

        Args:
            temporary: From `reserve`.
            final: Where it goes.
            size: Its size.
            replace: Whether a file that is there already is known to be bad.

        Returns:
            False if another process was faster; its file stays.

        Raises:
            OSError: If it cannot be put there.
        """
        with self.locked():
            try:
                check_way(final)
            except FileNotFoundError:
                private_folder(final.parent.parent)
                private_folder(final.parent)
                self._describe(final.parent.parent)
            there = _space_at(final, check=False)
            if there is not None and not replace:
                temporary.unlink()
                self.add(-footprint_bytes(size))
                return False
            temporary.replace(final)
            if there is not None:
                self._give_back(there, footprint_bytes(size))
            return True

    def remove(self, path: Path, most: int | None = None) -> bool:
        """Remove a block's file, or what is in its place; the caller holds the lock.

        Args:
            path: The file.
            most: Its disk space, if it is as it should be.

        Returns:
            False if there is none.

        Raises:
            OSError: If it cannot be removed.
        """
        space = _space_at(path)
        if space is None:
            return False
        path.unlink()
        self._give_back(space, most)
        return True

    def _give_back(self, space: int, most: int | None) -> None:
        """Take space off the total that is free again.

        A file that was larger than it should be may have grown since it was counted.
        """
        if most is not None and space > most:
            self._count()
        else:
            self.add(-space)

    def introduce(
        self, material: str, facts: dict[str, Any], now: float, max_bytes: int = 0
    ) -> Path:
        """Make the folder of a model and layout, younger than all others if it is new.

        Other processes see from now on that this one stores it, within that bound.

        Raises:
            OSError: If the folder cannot be made.
        """
        folder = self.path / material
        with self.locked():
            about = self.about(material)
            if about is None:
                others = [self.about(name) or {} for name in self.materials()]
                youngest = max((o["created"] for o in others if o), default=0.0)
                about = {"created": max(now, youngest + 1.0)}
            private_folder(folder)
            self._introduced[folder] = json.dumps({**about, **facts}, indent=2, sort_keys=True)
            self._describe(folder)
            self._us = Writer(id=self.id, material=material, max_bytes=max_bytes)
            self._note()
        return folder

    def _describe(self, folder: Path) -> None:
        """See that a model's folder says what it is, also if that was removed or damaged.

        On a full disk it does not; see `about`.
        """
        text = self._introduced.get(folder)
        if text is not None:
            with suppress(OSError):
                if _note_in(folder / ABOUT) != text.encode():
                    write_privately(folder / ABOUT, text)

    def retire(self, label: str, *, undo: bool = False) -> None:
        """Let the blocks of a version go first from now on, or no longer."""
        with self.locked():
            labels = self._labels() - {label} if undo else self._labels() | {label}
            lines = "".join(f"{each}\n" for each in sorted(labels))
            write_privately(self._retired, lines)

    def _counts(self) -> _Counts:
        """Nothing, if `total` does not say it: the next one who has the lock counts."""
        return self._read_counts() or _Counts(0, 0, 0)

    def _read_counts(self) -> _Counts | None:
        data = os.pread(self._total, _TOTAL.size + _SUM_BYTES + 1, 0)
        counted, checked = data[: _TOTAL.size], data[_TOTAL.size :]
        if len(counted) != _TOTAL.size or xxhash.xxh3_64_digest(counted) != checked:
            return None
        return _Counts._make(_TOTAL.unpack(counted))

    def _write_counts(self, counts: _Counts) -> None:
        os.pwrite(self._total, counts.pack(), 0)

    def _register(self) -> None:
        """Make our writer's file, and lock it for as long as we live."""
        private_folder(self.path / "writers")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = self.path / "writers" / self.id
        self._writer = _in_place_of(self._writer, os.open(file, flags, FILE_MODE))
        lock_file(self._writer)
        self._note()

    def _appear(self) -> None:
        """Make our writer's file again, if somebody has removed it."""
        if self._writer >= 0 and not os.fstat(self._writer).st_nlink:
            self._register()

    def _note(self) -> None:
        """Say what we store; on a full disk others take us for a tool."""
        with suppress(OSError):
            self._us.write(self._writer)

    def _clean(self) -> None:
        """Remove the unfinished files of writers that are gone; the total is not changed.

        Folders, and what cannot be removed, stay.
        """
        for path, writer in writers(self.path / "writers"):
            if writer is None:
                with suppress(OSError):
                    path.unlink()
        alive = {entry.name for entry in entries(self.path / "writers")}
        for entry in entries(self._temporary):
            if entry.name.split(".")[0] not in alive:
                with suppress(OSError):
                    Path(entry.path).unlink()


def _in_place_of(before: int, descriptor: int) -> int:
    """A descriptor under the number of an earlier one, which other threads may be using."""
    if before < 0:
        return descriptor
    os.dup2(descriptor, before, inheritable=False)
    os.close(descriptor)
    return before


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _space_at(path: Path, *, check: bool = True) -> int | None:
    """The disk space of what lies there, None if there is nothing."""
    try:
        return space_of(look(path) if check else path.lstat())
    except FileNotFoundError:
        return None


def _note_in(path: Path) -> bytes:
    """A small file's content, empty if it cannot be read."""
    with suppress(OSError):
        return read_note(path)
    return b""


def _changed(path: Path) -> float:
    """When something was changed last, 0 if it has gone."""
    with suppress(OSError):
        return path.lstat().st_mtime
    return 0.0


def block_name(key: bytes) -> str:
    """Where a block lies in its material's folder."""
    name = key.hex()
    return f"{name[:2]}/{name}{BLOCK_SUFFIX}"
