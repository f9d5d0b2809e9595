"""A tier's folder, to look at: nothing is changed. What lies there: see `directory`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from prefixctl.errors import InputError
from prefixctl.tiers.files import File, entries, files_below, read_note
from prefixctl.tiers.writers import Writer, writers

BLOCK_SUFFIX = ".kv"
ABOUT = "about.json"
SHORT_NAME = 16
_HEX = re.compile(rf"[0-9a-f]{{{SHORT_NAME}}}")
"""Names of models' folders and of writers."""
LATEST_CREATED = 2.0**33
"""Seconds since 1970: what is said to be seen later (2242) was not."""


class TierFolder:
    """A tier's folder, to look at: nothing is changed."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.retired_list = self.path / "retired"
        self.temporary = self.path / "temporary"

    def is_tier(self) -> bool:
        """Whether it is a tier's, also one whose `total` was removed."""
        if (self.path / "total").is_file():
            return True
        known = self.path / "writers"
        both = known.is_dir() and self.temporary.is_dir()
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
            about = json.loads(note_in(folder / ABOUT))
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
        return files_below(self.temporary)

    def writers(self) -> list[Writer | None]:
        """The processes that have opened the folder; None for each that was killed since."""
        return [writer for _, writer in writers(self.path / "writers")]

    def retired(self) -> frozenset[str]:
        """Labels of versions whose blocks go first."""
        with suppress(OSError):
            return self.labels()
        return frozenset()

    def labels(self) -> frozenset[str]:
        """As `retired`; a line that is no text is no label.

        Raises:
            OSError: If the list cannot be read.
        """
        lines = []
        with suppress(FileNotFoundError):
            lines = read_note(self.retired_list).split(b"\n")
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


def block_name(key: bytes) -> str:
    """Where a block lies in its material's folder."""
    name = key.hex()
    return f"{name[:2]}/{name}{BLOCK_SUFFIX}"


def note_in(path: Path) -> bytes:
    """A small file's content, empty if it cannot be read."""
    with suppress(OSError):
        return read_note(path)
    return b""


def _changed(path: Path) -> float:
    """When something was changed last, 0 if it has gone."""
    with suppress(OSError):
        return path.lstat().st_mtime
    return 0.0
