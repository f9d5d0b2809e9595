"""Where each prompt goes: beside its file if it is alone there, else into a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from prefixctl.adopt.model import Candidate

GOVERNED_FOLDER = "governed"
_PLAIN = re.compile(r"[^A-Za-z0-9_-]+")
_VAGUE_KEYS = frozenset(["content", "text", "body", "template", "templates", "messages"])
_VAGUE = frozenset(["prompt", "prompts", "template", "system", "index", "main", "default", "base"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A candidate with its prompt folder, relative to the repository, and its name."""

    candidate: Candidate
    folder: str
    name: str
    in_place: bool


def prompts_folder(candidates: Sequence[Candidate], others: Sequence[str]) -> str:
    """The folder that shall hold all governed prompts.

    Args:
        candidates: The prompts.
        others: Folders that are governed already.
    """
    folders = [_parent(c) for c in candidates if _is_alone(c, candidates)] + list(others)
    if not folders:
        return GOVERNED_FOLDER
    common = PurePosixPath(folders[0])
    for folder in folders:
        while not PurePosixPath(folder).is_relative_to(common):
            common = common.parent
    if len(set(folders)) == 1 and common.parts:
        common = common.parent
    return common.as_posix()


def place(
    candidates: Sequence[Candidate], prompts: str, taken: Sequence[str], everything: Sequence[str]
) -> list[Placed]:
    """A folder for each candidate.

    Args:
        candidates: The prompts.
        prompts: The folder of all governed prompts.
        taken: Names that are in use.
        everything: Paths of all files that may be read as prompts, chat templates included.
    """
    used = set(taken)
    base = PurePosixPath(prompts)
    base = base if base.name == GOVERNED_FOLDER else base / GOVERNED_FOLDER
    placed = []
    for candidate in candidates:
        parent = PurePosixPath(_parent(candidate))
        in_place = (
            _is_alone(candidate, candidates)
            and _only_one_below(parent.as_posix(), everything)
            and parent.is_relative_to(prompts)
            and parent.as_posix() not in {prompts, "."}
        )
        name = _name(candidate, used)
        used.add(name)
        folder = parent if in_place else base / name
        placed.append(
            Placed(candidate=candidate, folder=folder.as_posix(), name=name, in_place=in_place)
        )
    return placed


def _is_alone(candidate: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Whether the file can be the section itself, and no other prompt is in or below its folder."""
    parent = _parent(candidate)
    if not candidate.as_it_is or parent == ".":
        return False
    return _only_one_below(parent, [c.source for c in candidates])


def _only_one_below(folder: str, sources: Sequence[str]) -> bool:
    return sum(PurePosixPath(s).is_relative_to(folder) for s in sources) <= 1


def _parent(candidate: Candidate) -> str:
    return PurePosixPath(candidate.source).parent.as_posix()


def _plain(part: str) -> str:
    return _PLAIN.sub("-", part).strip("-.").lower()


def _name(candidate: Candidate, used: set[str]) -> str:
    """The shortest name that says which prompt it is: stem and key, then the folders above it."""
    path = PurePosixPath(candidate.source)
    keys = [k for k in map(_plain, candidate.key.split(".")) if k and k not in _VAGUE_KEYS]
    own = list(dict.fromkeys([_plain(path.stem) or "prompt", *keys]))
    words = [*(w for p in path.parent.parts if (w := _plain(p))), *own]
    for count in range(len(own), len(words) + 1):
        vague = all(w in _VAGUE or w.isdigit() for w in words[-count:])
        name = "-".join(words[-count:])
        if name not in used and (not vague or count == len(words)):
            return name
    base = "-".join(words)
    return next(n for i in range(2, len(used) + 3) if (n := f"{base}-{i}") not in used)
