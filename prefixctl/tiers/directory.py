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

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from prefixctl.tiers.block import footprint_bytes
from prefixctl.tiers.files import (
    FILE_MODE,
    File,
    check_way,
    entries,
    in_place_of,
    lock_file,
    look,
    private_folder,
    space_of,
    told,
    write_privately,
)
from prefixctl.tiers.folder import ABOUT, TierFolder, note_in
from prefixctl.tiers.total import Total
from prefixctl.tiers.writers import Writer, writers


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
        self._serial = 0
        self._introduced: dict[Path, str] = {}
        self._abandoned: list[tuple[Path, int]] = []
        self._us = Writer(id=self.id)
        self._writer = -1
        self._total = Total(
            self.path / "total",
            make_folder=self._make,
            count=lambda: sum(size for _, size, _ in self.files()),
            came_back=self._appear,
        )
        with ExitStack() as undo, told(path):
            undo.callback(self._let_go)
            self._total.open()
            with self.locked():
                self._register()
            undo.pop_all()

    def _make(self) -> None:
        """Make the folder if it is not there; errors as in `Total.open`."""
        self.check_free()
        for folder in (self.path, self.path / "writers", self.temporary):
            private_folder(folder)

    def _let_go(self) -> None:
        """Close what is open; nobody takes us for a writer any more."""
        descriptor, self._writer = self._writer, -1
        if descriptor >= 0:
            os.close(descriptor)
        self._total.close()
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
            before = self._total.counts
        unfinished = sum(size for _, size, _ in self.unfinished())
        counted = unfinished
        for material in self.block_folders():
            for file in self.files(material):
                counted += file[1]
                see(material, file)
        with self.locked():
            now = self._total.counts
            quiet = now == before and not unfinished
            total = counted if quiet else min(now.total, counted + now.added - before.added)
            if now.mended == before.mended:
                self._total.write(now._replace(total=total))

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
        """Exclude all other threads and processes that change the total; see `Total.locked`."""
        with self._total.locked():
            if self._abandoned:
                self._remove_abandoned()
            yield

    def _remove_abandoned(self) -> None:
        while self._abandoned:
            path, size = self._abandoned.pop()
            with suppress(FileNotFoundError):
                path.unlink()
                self.add(-size)

    @property
    def total_bytes(self) -> int:
        """Bytes of all blocks of all processes, reserved ones included."""
        return self._total.counts.total

    def add(self, size: int) -> None:
        """Change the total; the caller holds the lock."""
        self._total.add(size)

    def reserve(self, size: int) -> tuple[int, Path]:
        """A temporary file of that size, without disk space yet; the caller holds the lock.

        The space is in the total before the file is there. `allocate` takes it on the disk,
        without the lock.

        Raises:
            OSError: If the disk is full (ENOSPC, EDQUOT) or fails.
        """
        self._serial += 1
        path = self.temporary / f"{self.id}.{self._serial}"
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
                private_folder(self.temporary)
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
            self._total.count_again()
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
                if note_in(folder / ABOUT) != text.encode():
                    write_privately(folder / ABOUT, text)

    def retire(self, label: str, *, undo: bool = False) -> None:
        """Let the blocks of a version go first from now on, or no longer."""
        with self.locked():
            labels = self.labels() - {label} if undo else self.labels() | {label}
            lines = "".join(f"{each}\n" for each in sorted(labels))
            write_privately(self.retired_list, lines)

    def _register(self) -> None:
        """Make our writer's file, and lock it for as long as we live."""
        private_folder(self.path / "writers")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = self.path / "writers" / self.id
        self._writer = in_place_of(self._writer, os.open(file, flags, FILE_MODE))
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
        for entry in entries(self.temporary):
            if entry.name.split(".")[0] not in alive:
                with suppress(OSError):
                    Path(entry.path).unlink()


def _space_at(path: Path, *, check: bool = True) -> int | None:
    """The disk space of what lies there, None if there is nothing."""
    try:
        return space_of(look(path) if check else path.lstat())
    except FileNotFoundError:
        return None
