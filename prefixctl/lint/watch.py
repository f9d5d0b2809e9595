"""Waiting for files to change, by looking at them: no library, no handle for each folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prefixctl.errors import InputError
from prefixctl.lint.find import Found
from prefixctl.sources.files import walk

LEAST_SECONDS = 0.3
MOST_SECONDS = 5.0
_RATIO = 10
"""How many times longer than a look the wait between two looks is, so that a large repository costs
a tenth of a core at most."""

_State = dict[Path, tuple[int, int, int]]


class Watch:
    """What files were like when they were looked at last."""

    def __init__(
        self,
        find: Callable[[], Sequence[Found]],
        others: Sequence[Path] = (),
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Look at the files for the first time.

        Args:
            find: Finds the files; called for each look, so that new ones are seen.
            others: Further files, which may be missing: the configuration, the lock.
            sleep: Waits for seconds.
        """
        self._find = find
        self._others = tuple(others)
        self._sleep = sleep
        self._seen = self._look()

    def wait(self) -> tuple[Path, ...]:
        """Wait until a file is new, changed or gone, and say which."""
        while True:
            begun = time.monotonic()
            now = self._look()
            before, self._seen = self._seen, now
            changed = {p for p in (*before, *now) if before.get(p) != now.get(p)}
            if changed:
                return tuple(sorted(changed))
            took = time.monotonic() - begun
            self._sleep(min(max(LEAST_SECONDS, _RATIO * took), MOST_SECONDS))

    def _look(self) -> _State:
        try:
            files = [*_files(self._find())]
        except InputError:
            files = []  # gone for now, or not readable: lint itself says which
        found = {}
        for path in (*self._others, *files):
            try:
                stat = path.stat()
            except OSError:
                continue
            found[path] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return found


def _files(found: Sequence[Found]) -> Iterable[Path]:
    for one in found:
        if not one.governed:
            yield one.path
            continue
        for folder in walk(one.path):
            yield from (folder.path / name for name in folder.files)
