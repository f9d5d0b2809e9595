"""Generated files on disk: replaced at once, or compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefixctl.errors import DriftError
from prefixctl.sources.files import replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFile:
    """A generated file.

    Attributes:
        path: Where it lies.
        changed: Whether it was written; a file that is current is left alone.
    """

    path: Path
    changed: bool


def write_generated(path: Path, text: str) -> GeneratedFile:
    """Write a file as a whole or not at all; leave it alone if it is current.

    Raises:
        OSError: If it cannot be written; the old file is then still there.
    """
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return GeneratedFile(path=path, changed=False)
    replace_file(path, data)
    return GeneratedFile(path=path, changed=True)


def require_current(path: Path, text: str) -> None:
    """Compare a file with what would be written.

    Raises:
        DriftError: If it is missing or differs, with the first line that does.
    """
    hint = "run the command again without --check, and commit the result"
    try:
        found = path.read_bytes()
    except OSError as exc:
        raise DriftError("the generated file is missing", path=str(path), hint=hint) from exc
    wanted = text.encode()
    if found == wanted:
        return
    pairs = zip(found.split(b"\n"), wanted.split(b"\n"), strict=False)
    same = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
    line = min(found.count(b"\n"), wanted.count(b"\n")) if same is None else same + 1
    raise DriftError("differs from what is generated now", path=str(path), line=line, hint=hint)
