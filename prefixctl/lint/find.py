"""Which files to lint, from the paths on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from prefixctl.core.prompt import PROMPT_FILE
from prefixctl.errors import InputError, NothingToDoError
from prefixctl.lint.readers.any_file import may_hold_a_prompt
from prefixctl.lint.readers.text import TEMPLATE_SUFFIXES, TEXT_SUFFIXES

_SKIPPED_FOLDERS = frozenset(
    ["node_modules", "__pycache__", "site-packages", "venv", "dist", "build"]
)
_DOCUMENTATION = ("readme", "changelog", "contributing", "license", "code_of_conduct", "security",
                  "requirements", "notice", "authors", "history")  # fmt: skip
_SECTIONS_KEY = b"sections:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file to lint.

    Attributes:
        path: The file, or the folder of a governed prompt.
        governed: Whether it is one.
        named: Whether the command line names it, so that it may not be passed over.
    """

    path: Path
    governed: bool = False
    named: bool = False


def find_files(
    paths: Sequence[Path], exclude: Sequence[str] = (), *, root: Path = Path()
) -> list[Found]:
    """The files that paths name or hold, each once, sorted.

    A file of a governed prompt stands for its whole prompt.

    Args:
        paths: Files and folders.
        exclude: Glob patterns of paths to pass over, unless the command line names them.
        root: The folder that the patterns are relative to.

    Raises:
        InputError: If a path does not exist.
        NothingToDoError: If there is nothing to lint.
    """
    found: dict[Path, Found] = {}
    for path in paths:
        if not path.exists():
            raise InputError("no such file or folder", path=str(path))
        entries = _walk(path, _Excluded(exclude, root)) if path.is_dir() else [_named(path)]
        for entry in entries:
            if entry.path not in found or entry.named:
                found[entry.path] = entry
    if not found:
        shown = ", ".join(str(p) for p in paths)
        raise NothingToDoError(
            "nothing to lint",
            path=shown,
            hint="prompts are " + " ".join(sorted(TEMPLATE_SUFFIXES | TEXT_SUFFIXES))
            + " files, prompts in JSON, YAML, TOML and BAML, source code whose name speaks of "
            f"prompts, and folders with {PROMPT_FILE}",
        )  # fmt: skip
    return [found[p] for p in sorted(found)]


def is_governed(folder: Path) -> bool:
    """Whether a folder holds a governed prompt."""
    file = folder / PROMPT_FILE
    try:
        return file.is_file() and _SECTIONS_KEY in file.read_bytes()
    except OSError:
        return False


def _named(path: Path) -> Found:
    folder = path.parent
    if is_governed(folder) and (path.name == PROMPT_FILE or _is_section(folder, path)):
        return Found(path=folder, governed=True, named=True)
    return Found(path=path, named=True)


def _is_section(folder: Path, path: Path) -> bool:
    return path.name.encode() in (folder / PROMPT_FILE).read_bytes()


def _walk(top: Path, excluded: _Excluded) -> Iterator[Found]:
    for name, folders, files in os.walk(top):
        folder = Path(name)
        if is_governed(folder):
            folders.clear()
            if folder not in excluded:
                yield Found(path=folder, governed=True)
            continue
        folders[:] = sorted(
            f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS
        )
        for file in sorted(files):
            path = folder / file
            if _may_hold_a_prompt(path) and path not in excluded:
                yield Found(path=path)


def _may_hold_a_prompt(path: Path) -> bool:
    if path.name.lower().startswith(_DOCUMENTATION):
        return False
    return may_hold_a_prompt(path)


class _Excluded:
    """The paths that some pattern passes over: by the path from the root, or by the name alone."""

    def __init__(self, patterns: Sequence[str], root: Path) -> None:
        base = root.resolve()
        self._paths = [(base / p).as_posix() for p in patterns]
        self._names = patterns

    def __contains__(self, path: Path) -> bool:
        shown = path.resolve().as_posix()
        return any(fnmatch(shown, p) for p in self._paths) or any(
            fnmatch(path.name, p) for p in self._names
        )
