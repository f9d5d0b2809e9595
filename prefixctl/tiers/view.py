"""What lies in a tier's folder, from outside: nothing is opened for writing."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from prefixctl.core.policy.tier import Rules
from prefixctl.errors import InputError
from prefixctl.tiers.block import NO_OWNER, Header, footprint_bytes
from prefixctl.tiers.files import look, space_of
from prefixctl.tiers.folder import BLOCK_SUFFIX, TierFolder
from prefixctl.tiers.index import Found, Index, expired
from prefixctl.tiers.others import Others, standings
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
    return TierFolder(path).is_tier()


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
    models, headers = [], {}
    for name in folder.materials():
        headers[name], broken = read_headers(folder.files(name), None, None)
        models.append(_model(folder, name, headers[name], broken))
    retired = folder.retired()
    return TierView(
        path=str(path),
        bytes=sum(size for _, size, _ in folder.files()),
        models=tuple(models),
        retired=tuple(sorted(retired)),
        victims=tuple(islice(_victims(folder, headers, rules, retired), victims)),
    )


def block_headers(path: Path, model: str, hashes: Iterable[bytes]) -> list[tuple[Header, float]]:
    """The sound blocks of a model that have one of these block hashes, and when they were used.

    Args:
        path: The tier's folder.
        model: The name of the model's folder.
        hashes: Block hashes; a key is one of them and the number of a cache group, of which any
            counts.
    """
    folder = TierFolder(path)
    files = [
        (str(file), space_of(status), status.st_mtime)
        for name in (block.hex() for block in hashes)
        for file in (folder.path / model / name[:2]).glob(f"{name}????????{BLOCK_SUFFIX}")
        if (status := _status(file)) is not None
    ]
    return read_headers(files, folder.digest(model), None)[0]


def _status(file: Path) -> os.stat_result | None:
    try:
        return look(file)
    except OSError:
        return None


def _model(
    folder: TierFolder, name: str, found: Sequence[tuple[Header, float]], broken: Sequence[str]
) -> StoredModel:
    about = folder.about(name) or {}
    used = [at for _, at in found]
    versions = Counter(header.label for header, _ in found if header.label)
    return StoredModel(
        folder=name,
        created=about.get("created", 0.0),
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
    folder: TierFolder, found: dict[str, list[Found]], rules: Rules, retired: frozenset[str]
) -> Iterator[Victim]:
    """In the order of the server of the newest model that has one; see `Room`."""
    names, served = list(found), {writer.material for writer in folder.writers() if writer}
    ours = next((name for name in reversed(names) if name in served), (names or [""])[-1])
    kinds = standings(names, ours, served)
    files = {
        str(folder.block(name, header.key)): (name, header, used)
        for name in names
        for header, used in found[name]
    }
    others = Others(
        kinds,
        ((name, (path, 0, used)) for path, (name, _, used) in files.items() if name != ours),
    )
    before = float("-inf") if rules.ttl_seconds is None else time.time() - rules.ttl_seconds
    for choose in (others.older, partial(others.expired, before)):
        while (path := choose()) is not None:
            yield _victim(*files[path])
    index = Index(slots=max(len(found.get(ours, ())), 1), rules=rules, clock=time.time)
    index.add_all(found.get(ours, ()))
    index.expire(*expired(index.all_entries(), before))
    while True:
        own = index.expired_victim(before) or index.retired_victim(retired)
        if own is None:
            own = index.victim()
            while (path := others.left(float("inf") if own is None else own.used)) is not None:
                yield _victim(*files[path])
        if own is None:
            return
        yield _victim(*files[str(folder.block(ours, own.key))])


def _victim(model: str, header: Header, used: float) -> Victim:
    return Victim(
        model=model,
        key=header.key.hex(),
        version=header.label,
        depth=header.depth,
        used=used,
    )
