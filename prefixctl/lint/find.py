"""Which files to lint, from the paths on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixctl.core.prompt import PROMPT_FILE
from prefixctl.errors import InputError, NothingToDoError
from prefixctl.lint.per_path import Globs
from prefixctl.lint.readers.any_file import CODE_SUFFIXES, may_hold_a_prompt
from prefixctl.lint.readers.text import TEMPLATE_SUFFIXES, TEXT_SUFFIXES
from prefixctl.sources.files import Folder, walk
from prefixctl.yamlfile import MAX_YAML_BYTES, read_bytes

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
    paths: Sequence[Path],
    exclude: Sequence[str] = (),
    *,
    root: Path = Path(),
    passed_over: list[Path] | None = None,
) -> list[Found]:
    """The files that paths name or hold, each once, sorted.

    A file of a governed prompt stands for its whole prompt.

    Args:
        paths: Files and folders.
        exclude: Glob patterns of paths to pass over, unless the command line names them.
        root: The folder that the patterns are relative to.
        passed_over: Gets the source files of folders whose names do not speak of prompts.

    Raises:
        InputError: If a path does not exist, or a folder cannot be read.
        NothingToDoError: If there is nothing to lint.
    """
    found: dict[Path, Found] = {}
    excluded: list[Path] = []
    sources: list[Path] = [] if passed_over is None else passed_over
    globs = Globs(exclude, root)
    for path in paths:
        if not path.exists():
            raise InputError("no such file or folder", path=str(path))
        entries = _walk(path, globs, excluded, sources) if path.is_dir() else [named_file(path)]
        for entry in entries:
            if entry.path not in found or entry.named:
                found[entry.path] = entry
    if not found:
        raise _nothing(paths, excluded)
    return [found[p] for p in sorted(found)]


def is_governed(folder: Path) -> bool:
    """Whether a folder holds a governed prompt."""
    file = folder / PROMPT_FILE
    return _SECTIONS_KEY in _text(file)


def named_file(path: Path) -> Found:
    """A file that somebody names, there or not; a governed prompt's stands for all of it."""
    folder = path.parent
    if is_governed(folder) and (path.name == PROMPT_FILE or _is_section(folder, path)):
        return Found(path=folder, governed=True, named=True)
    return Found(path=path, named=True)


def _is_section(folder: Path, path: Path) -> bool:
    return os.fsencode(path.name) in _text(folder / PROMPT_FILE)


def _text(file: Path) -> bytes:
    """What people wrote in a file; nothing if it is none that people write."""
    try:
        return read_bytes(file, limit=MAX_YAML_BYTES)
    except InputError:
        return b""


def _nothing(paths: Sequence[Path], excluded: Sequence[Path]) -> NothingToDoError:
    hint = (
        "prompts are "
        + " ".join(sorted(TEMPLATE_SUFFIXES | TEXT_SUFFIXES))
        + " files, prompts in JSON, YAML, TOML and BAML, source code whose name speaks of "
        f"prompts, and folders with {PROMPT_FILE}"
    )
    if excluded:
        count = len(excluded)
        hint = (
            f"{count} file{'s' * (count != 1)}, for example {excluded[0]}, stand under "
            "lint.exclude in prefixctl.yaml; name a file itself to lint it all the same"
        )
    return NothingToDoError("nothing to lint", path=", ".join(map(str, paths)), hint=hint)


def _walk(top: Path, globs: Globs, excluded: list[Path], sources: list[Path]) -> Iterator[Found]:
    """What a folder holds; what a pattern passes over is added to `excluded`.

    Source code is looked at only where its name speaks of prompts; the rest is added to `sources`.
    """

    def governed(folder: Folder) -> bool:
        return PROMPT_FILE in folder.files and is_governed(folder.path)

    for folder in walk(top, whole=governed):
        if governed(folder):
            if folder.path in globs:
                excluded.append(folder.path)
            else:
                yield Found(path=folder.path, governed=True)
            continue
        for file in folder.files:
            path = folder.path / file
            if not _may_hold_a_prompt(path):
                if path.suffix.lower() in CODE_SUFFIXES and path not in globs:
                    sources.append(path)
                continue
            if path in globs:
                excluded.append(path)
            else:
                yield Found(path=path)


def _may_hold_a_prompt(path: Path) -> bool:
    if path.name.lower().startswith(_DOCUMENTATION):
        return False
    return may_hold_a_prompt(path)
