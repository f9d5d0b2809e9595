"""The blocks of other models in one folder, and when they may go for ours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

from prefixctl.tiers.files import File

MOST = 50_000
"""How many blocks of a kind are remembered, those that were not used for longest."""
Aged = tuple[int, float, str]
"""The rank of a model, the last use of a block, and its path."""


class Standing(StrEnum):
    """How another model stands to ours.

    OLDER: It was seen first before ours; all of it goes before anything of ours.
    YOUNGER: A server has it; only what has expired goes.
    LEFT: Younger, and no server has it: precomputed, rolled back, or between two servers. Its
        blocks and ours go by their last use.
    """

    OLDER = "older"
    YOUNGER = "younger"
    LEFT = "left"


def standings(materials: Sequence[str], ours: str, served: Collection[str]) -> dict[str, Standing]:
    """Every other model's.

    Args:
        materials: All models, the one that was seen first in front.
        ours: One of them.
        served: Those that living processes store.
    """
    at = materials.index(ours) if ours in materials else len(materials)
    younger = {
        name: Standing.YOUNGER if name in served else Standing.LEFT for name in materials[at + 1 :]
    }
    return {**dict.fromkeys(materials[:at], Standing.OLDER), **younger}


class Others:
    """The files of other models, each kind in the order in which it goes.

    Attributes:
        newest: The last use of all.
        run_dry: Whether there were more blocks of a kind than were remembered, and those are gone.
    """

    def __init__(self, models: dict[str, Standing], files: Iterable[tuple[str, File]]) -> None:
        """Read a listing.

        Args:
            models: From `standings`, in the order of age.
            files: Blocks, with the folder of their model.
        """
        self._kinds = {standing: _Oldest() for standing in Standing}
        self.newest = float("-inf")
        self.run_dry = False
        ranks = {name: rank for rank, name in enumerate(models)}
        for name, (path, _, used) in files:
            self.newest = max(self.newest, used)
            standing = models[name]
            rank = ranks[name] if standing is Standing.OLDER else 0
            self._kinds[standing].add((rank, used, path))
        for kind in self._kinds.values():
            kind.shorten()

    @property
    def any_may_go(self) -> bool:
        """Whether there are blocks that go although they have not expired."""
        return bool(self._kinds[Standing.OLDER].files or self._kinds[Standing.LEFT].files)

    def older(self) -> str | None:
        """The next block of an older model."""
        return self._take(Standing.OLDER, float("inf"))

    def expired(self, before: float) -> str | None:
        """The next block of a younger model that was last used before a time."""
        return self._take(Standing.YOUNGER, before) or self._take(Standing.LEFT, before)

    def left(self, before: float) -> str | None:
        """The next block that was last used before a time, of a model that no server has."""
        return self._take(Standing.LEFT, before)

    def _take(self, standing: Standing, before: float) -> str | None:
        kind = self._kinds[standing]
        if not kind.files or kind.files[-1][1] >= before:
            return None
        path = kind.files.pop()[2]
        self.run_dry = self.run_dry or (kind.cut and not kind.files)
        return path


class _Oldest:
    """The first of many files in their order."""

    def __init__(self) -> None:
        self.files: list[Aged] = []
        self.cut = False

    def add(self, file: Aged) -> None:
        self.files.append(file)
        if len(self.files) >= 2 * MOST:
            self.shorten()

    def shorten(self) -> None:
        """Forget all but the first ones, and put the very first at the end."""
        self.files.sort()
        self.cut = self.cut or len(self.files) > MOST
        del self.files[MOST:]
        self.files.reverse()
