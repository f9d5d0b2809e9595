"""Who uses a folder: one file for each process, locked as long as it lives."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from prefixctl.tiers.files import entries, open_file

NOTE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A living process that has opened the folder.

    Attributes:
        id: Its name here.
        material: The folder of the model that it stores, empty for a tool's.
        max_bytes: Its bound of the whole folder, 0 for none.
    """

    id: str
    material: str = ""
    max_bytes: int = 0

    def write(self, descriptor: int) -> None:
        """Say what it stores, in its file."""
        data = json.dumps(asdict(self)).encode()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def writers(folder: Path) -> Iterator[tuple[Path, Writer | None]]:
    """The files in a folder of writers, with None for those that have died.

    A lock that others may hold at the same time is tried, so lookers do not see each other.
    """
    for path in sorted(Path(entry.path) for entry in entries(folder)):
        try:
            descriptor, _ = open_file(path)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield path, None
        except BlockingIOError:
            yield path, _read(path.name, os.pread(descriptor, NOTE_BYTES, 0))
        finally:
            os.close(descriptor)


def _read(name: str, data: bytes) -> Writer:
    try:
        note = json.loads(data)
        return Writer(id=name, material=str(note["material"]), max_bytes=int(note["max_bytes"]))
    except (ValueError, KeyError, TypeError):
        return Writer(id=name)
