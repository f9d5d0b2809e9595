"""Which model's blocks a configuration has: noted by its servers, read by commands without one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from prefixctl.tiers.files import FOLDER_MODE, read_note, write_privately
from prefixctl.tiers.folder import SHORT_NAME

FOLDER = "serving"


def note_serving(path: Path, configuration: str, material: str, *, model: str = "") -> None:
    """Note that servers of a configuration use the blocks of a model.

    A disk that is full or fails notes nothing: what was noted before stays.

    Args:
        path: The tier's folder.
        configuration: A digest of it, in hex.
        material: The name of the model's folder.
        model: What salts call the model.
    """
    folder = path / FOLDER
    note = {"material": material, "model": model}
    if _read(folder / configuration[:SHORT_NAME]) != note:
        with suppress(OSError):
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            write_privately(folder / configuration[:SHORT_NAME], json.dumps(note))


def serving(path: Path, configuration: str) -> str | None:
    """The folder of the model that a configuration had last, None if it was never served."""
    return _read(path / FOLDER / configuration[:SHORT_NAME]).get("material")


def served_models(path: Path) -> set[str]:
    """What salts call the models that were served from a folder."""
    try:
        notes = [_read(file) for file in (path / FOLDER).iterdir()]
    except OSError:
        return set()
    return {note["model"] for note in notes if note.get("model")}


def _read(file: Path) -> dict[str, str]:
    """A note; an empty one if there is none that can be read."""
    try:
        note = json.loads(read_note(file))
    except (OSError, ValueError, RecursionError):
        return {}
    good = isinstance(note, dict) and all(isinstance(value, str) for value in note.values())
    return note if good else {}
