"""Leases: one worker for each prefix, also across processes and machines that share a registry.

A lease ends by itself after its time, so a killed worker holds up nobody for longer than that.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from prefixctl.errors import UnreachableError

BUSY_SECONDS = 10.0
POLL_SECONDS = 0.2


class SqliteLeases:
    """Leases in a SQLite file beside the registry."""

    def __init__(
        self, path: Path, *, seconds: float = 300.0, clock: Callable[[], float] = time.time
    ) -> None:
        """Nothing is opened before the first lease.

        Args:
            path: The file; made if it is missing.
            seconds: How long a lease lasts at most; longer than the slowest prefill.
            clock: Seconds since the epoch, the same for all holders.
        """
        self._path = path
        self._seconds = seconds
        self._clock = clock

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Wait for the lease of a key, and let go of it at the end.

        Raises:
            UnreachableError: If the file cannot be written.
        """
        owner = uuid.uuid4().hex
        while not self._take(key, owner):
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            self._run("DELETE FROM leases WHERE key = ? AND owner = ?", (key, owner))

    def _take(self, key: str, owner: str) -> bool:
        now = self._clock()
        taken = self._run(
            "INSERT INTO leases VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE "
            "SET owner = excluded.owner, expires = excluded.expires WHERE expires <= ?",
            (key, owner, now + self._seconds, now),
        )
        return taken == 1

    def _run(self, statement: str, values: tuple[object, ...]) -> int:
        """Run one statement in a transaction of its own; the number of rows that it changed."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as database, database:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS leases "
                    "(key TEXT PRIMARY KEY, owner TEXT NOT NULL, expires REAL NOT NULL)"
                )
                return database.execute(statement, values).rowcount
        except (sqlite3.Error, OSError) as exc:
            raise UnreachableError(f"no lease can be had: {exc}", path=str(self._path)) from exc
