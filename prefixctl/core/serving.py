"""Which version is live, how a rollback goes back, and when a retired version expires."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Which version of a prompt is live, and which ones a rollback goes back to.

    Attributes:
        stack: The versions that went live, newest last, without those rolled back.
    """

    stack: tuple[int, ...] = ()

    @property
    def live(self) -> int | None:
        """The version that is served."""
        return self.stack[-1] if self.stack else None

    @property
    def previous(self) -> int | None:
        """The version that a rollback makes live."""
        return self.stack[-2] if len(self.stack) > 1 else None

    def published(self, version: int) -> Self:
        """After a version was made live; no change if it is."""
        return self if version == self.live else replace(self, stack=(*self.stack, version))

    def rolled_back(self, to: int | None = None) -> Self:
        """After a rollback to ``previous``, or to a given version.

        A second rollback goes one version further back, never forward to the one that was just
        found bad. A version that is not further back is put on top, as `published` does.

        Raises:
            ValueError: If there is no version to go back to.
        """
        if to is None:
            to = self.previous
            if to is None:
                raise ValueError("no earlier version")
            return replace(self, stack=self.stack[:-1])
        if to not in self.stack:
            return self.published(to)
        depth = len(self.stack) - 1 - self.stack[::-1].index(to)
        return replace(self, stack=self.stack[: depth + 1])

    def without(self, versions: set[int]) -> Self:
        """After versions were removed."""
        kept: list[int] = []
        for version in self.stack:
            if version not in versions and kept[-1:] != [version]:
                kept.append(version)
        return replace(self, stack=tuple(kept))


def is_expired(retired_at: datetime | None, now: datetime, retention: timedelta) -> bool:
    """Whether a version has been retired (neither live nor previous) for the retention time.

    A clock that stands before the retirement expires nothing.
    """
    return retired_at is not None and now - retired_at >= retention
