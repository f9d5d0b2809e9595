"""What lies in a tier's folder, from outside: nothing is opened for writing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixctl.errors import InputError
from prefixctl.tiers.block import NO_OWNER, Header, footprint_bytes
from prefixctl.tiers.directory import BLOCK_SUFFIX, TierFolder
from prefixctl.tiers.index import Index, Rules
from prefixctl.tiers.read import read_headers

MOST_LABELS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """The blocks of one model and layout.

    Attributes:
        folder: The name of its folder.
        created: When it was first seen, in seconds since 1970; older ones are evicted first.
        weights: What names its weights.
        blocks: Its blocks.
        bytes: Their disk space.
        used_first: The last use of the block that was not used for longest.
        used_last: The last use of the block that was used last.
        broken: Files that are no blocks; the next server removes them.
        encrypted: Encrypted blocks.
        owners: How many owners they have.
        versions: Blocks of each governed version.
    """

    folder: str
    created: float
    weights: str
    blocks: int
    bytes: int
    used_first: float
    used_last: float
    broken: int
    encrypted: int
    owners: int
    versions: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A block that would go next."""

    model: str
    key: str
    version: str
    depth: int
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """A tier's folder.

    Attributes:
        path: The folder.
        bytes: Disk space of all blocks.
        models: The models, the one that was seen first in front.
        retired: Versions whose blocks go first.
        victims: What would go next, the first one in front, if nothing was used any more.
    """

    path: str
    bytes: int
    models: tuple[StoredModel, ...]
    retired: tuple[str, ...]
    victims: tuple[Victim, ...]


def is_tier(path: Path) -> bool:
    """Whether a folder is a tier's."""
    return (path / "total").is_file()


def check_tier(path: Path) -> None:
    """See that a folder is a tier's.

    Raises:
        InputError: If it is not.
    """
    if not is_tier(path):
        raise InputError("no tier here", path=str(path), hint="a server with `tiers.nvme` makes it")


def view_tier(path: Path, rules: Rules, *, victims: int = 10) -> TierView:
    """Read all headers of a tier's folder.

    Args:
        path: The folder.
        rules: By which its blocks are evicted.
        victims: How many to name.

    Raises:
        InputError: If there is no tier.
    """
    check_tier(path)
    folder = TierFolder(path)
    models, headers = [], []
    for name in folder.materials():
        found, broken = read_headers(folder.files(name), None, None)
        models.append(_model(folder, name, found, broken))
        headers.append((name, found))
    retired = folder.retired()
    return TierView(
        path=str(path),
        bytes=sum(size for _, size, _ in folder.files()),
        models=tuple(models),
        retired=tuple(sorted(retired)),
        victims=tuple(_victims(headers, rules, retired, victims)),
    )


def stored_model(path: Path, hashes: Sequence[bytes]) -> str | None:
    """The model's folder that holds a block for every one of these block hashes, the newest first.

    A key is a block hash and the number of a cache group; any group counts.
    """
    folder = TierFolder(path)
    for name in reversed(folder.materials()):
        if hashes and all(_holds(path / name, block.hex()) for block in hashes):
            return name
    return None


def _holds(folder: Path, name: str) -> bool:
    if (folder / name[:2] / f"{name}00000000{BLOCK_SUFFIX}").exists():
        return True
    return any((folder / name[:2]).glob(f"{name}*{BLOCK_SUFFIX}"))


def _model(
    folder: TierFolder, name: str, found: Sequence[tuple[Header, float]], broken: Sequence[str]
) -> StoredModel:
    about = folder.about(name) or {}
    used = [at for _, at in found]
    versions = Counter(header.label for header, _ in found if header.label)
    return StoredModel(
        folder=name,
        created=float(about.get("created", 0.0)),
        weights=str(about.get("weights", "")),
        blocks=len(found),
        bytes=sum(footprint_bytes(header.file_bytes) for header, _ in found),
        used_first=min(used, default=0.0),
        used_last=max(used, default=0.0),
        broken=len(broken),
        encrypted=sum(header.nonce is not None for header, _ in found),
        owners=len({header.owner for header, _ in found} - {NO_OWNER}),
        versions=dict(versions.most_common(MOST_LABELS)),
    )


def _victims(
    models: Iterable[tuple[str, Sequence[tuple[Header, float]]]],
    rules: Rules,
    retired: frozenset[str],
    count: int,
) -> list[Victim]:
    """Older models by last use, then the newest one's own order."""
    *older, newest = [*models] or [("", [])]
    chosen = [
        _victim(name, header, used)
        for name, found in older
        for header, used in sorted(found, key=lambda f: f[1])[:count]
    ]
    name, found = newest
    index = Index(slots=max(len(found), 1), rules=rules, clock=time.time)
    index.add_all(found)
    headers = {header.key: (header, used) for header, used in found}
    while len(chosen) < count:
        entry = index.retired_victim(retired) or index.victim()
        if entry is None:
            break
        chosen.append(_victim(name, *headers[entry.key]))
    return chosen[:count]


def _victim(model: str, header: Header, used: float) -> Victim:
    return Victim(
        model=model,
        key=header.key.hex(),
        version=header.label,
        depth=header.depth,
        used=used,
    )
