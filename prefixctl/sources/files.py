"""Files on disk: walked in one way, and replaced at once or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prefixctl.errors import InputError

TOOL_FOLDERS = frozenset(
    ["node_modules", "__pycache__", "site-packages", "venv", "dist", "build"]
)  # fmt: skip
"""Folders that tools make; hidden ones are passed over as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder on the way.

    Attributes:
        path: The folder.
        files: Names of all that lies in it and is no folder, sorted; links to nowhere included.
        folders: Names of its folders, hidden ones included.
    """

    path: Path
    files: tuple[str, ...]
    folders: tuple[str, ...]

    def has(self, name: str) -> bool:
        """Whether anything in it has that name."""
        return name in self.files or name in self.folders


def walk(
    top: Path,
    *,
    skip: frozenset[str] = TOOL_FOLDERS,
    whole: Callable[[Folder], bool] = lambda _: False,
    error: type[InputError] = InputError,
) -> Iterator[Folder]:
    """The folders below a folder, itself first, by name; links are followed, each folder once.

    Args:
        top: Where to begin.
        skip: Names of folders to pass over; hidden ones always are.
        whole: Says of a folder that what lies in it is one thing: it is not gone into.
        error: What is raised.

    Raises:
        InputError: As ``error``, if a folder cannot be read: what is in it would be passed over in
            silence.
    """
    pending, seen = [top], set()
    while pending:
        path = pending.pop()
        try:
            real = path.resolve()
            if real in seen:
                continue
            seen.add(real)
            with os.scandir(path) as entries:
                names = sorted((e.name, os.path.isdir(e.path)) for e in entries)  # noqa: PTH112
        except (OSError, RuntimeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise error(f"cannot be read: {reason}", path=str(path)) from exc
        folder = Folder(
            path=path,
            files=tuple(n for n, is_folder in names if not is_folder),
            folders=tuple(n for n, is_folder in names if is_folder),
        )
        yield folder
        if not whole(folder):
            inner = (n for n in folder.folders if not n.startswith(".") and n not in skip)
            pending += [path / n for n in reversed([*inner])]


def real_path(path: Path) -> Path:
    """Where a path leads, links followed; the path itself where links go round in a circle."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def replace_file(path: Path, data: bytes, *, temporary: Path | None = None) -> None:
    """Put a file's new content in its place at once; its permissions stay, a link stays a link.

    Args:
        path: The file, there or not; its folder must exist.
        data: The content.
        temporary: The name to write to first, for a caller that keeps other writers away and
            wants what a killed one left to be overwritten; one of its own if omitted.

    Raises:
        OSError: If it cannot be written; the old file is then still there, whole. A device or a
            pipe is not replaced by a file.
    """
    target = real_path(path)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    if temporary is None:
        fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporary = Path(name)
    else:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
