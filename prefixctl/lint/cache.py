"""Reports of earlier runs, found by all that they depend on.

An entry is found by the file's bytes and name, by how lint was set up, and by the code of prefixctl
itself; it also lists the templates that the file includes, and holds only while each of them still
reads the same. What cannot be used (a broken database, a folder that is read-only) is as good as
empty: the cache may cost time, never an answer.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from prefixctl import __version__
from prefixctl.lint.codec import dumps, loads
from prefixctl.lint.evaluate.state import Loader
from prefixctl.lint.report import FileReport

FILE_NAME = "reports.db"
MAX_ENTRIES = 50_000
_FORMAT = 1
_WAIT_SECONDS = 2.0


class Loads:
    """A loader of included templates that remembers what it was asked for."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.seen: dict[str, str] = {}

    def __call__(self, name: str) -> str | None:
        """The template of that name, or None."""
        text = self._loader(name)
        self.seen[name] = _digest(text)
        return text

    def still(self, seen: dict[str, str]) -> bool:
        """Whether all templates are what they were."""
        return all(_digest(self._loader(name)) == digest for name, digest in seen.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the cache knows of a file: its report, or that it holds no prompt."""

    report: FileReport | None


class Cache:
    """A cache in a folder. Use it as a context; what is new is written at its end."""

    def __init__(self, folder: Path, settings: str) -> None:
        """Name the folder and all settings that reports depend on."""
        self._folder = folder
        self._settings = _hash(settings, code_fingerprint())
        self._database: sqlite3.Connection | None = None
        self._new: list[tuple[str, str, str]] = []

    def __enter__(self) -> Self:
        with suppress(OSError, sqlite3.Error):
            self._folder.mkdir(parents=True, exist_ok=True)
            ignore = self._folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            self._database = _open(self._folder / FILE_NAME)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._database is None:
            return
        with suppress(sqlite3.Error), self._database:
            self._database.executemany("INSERT OR REPLACE INTO reports VALUES (?, ?, ?)", self._new)
            self._database.execute(
                "DELETE FROM reports WHERE rowid <= (SELECT max(rowid) FROM reports) - ?",
                (MAX_ENTRIES,),
            )
        self._database.close()

    def find(self, path: str, named: bool, data: bytes, loader: Loads) -> Kept | None:
        """What is known of a file with that content."""
        if self._database is None:
            return None
        key = self._key(path, named, data)
        try:
            row = self._database.execute(
                "SELECT loads, report FROM reports WHERE key = ?", (key,)
            ).fetchone()
            if row is None or not loader.still(json.loads(row[0])):
                return None
            return Kept(report=loads(row[1]))
        except (sqlite3.Error, ValueError, TypeError, KeyError, AttributeError):
            return None

    def keep(
        self, path: str, named: bool, data: bytes, loader: Loads, report: FileReport | None
    ) -> None:
        """Remember the report of a file, or that it has none."""
        if self._database is not None:
            key = self._key(path, named, data)
            self._new.append((key, json.dumps(loader.seen), dumps(report)))

    def _key(self, path: str, named: bool, data: bytes) -> str:
        return _hash(self._settings, path, str(named), hashlib.sha256(data).hexdigest())


@cache
def code_fingerprint() -> str:
    """Names the code that makes reports: versions, and size and age of the package's files."""
    package = Path(str(resources.files("prefixctl")))
    files = sorted(f for s in ("*.py", "*.yaml") for f in package.rglob(s))
    stats = [f"{f.name} {(s := f.stat()).st_size} {s.st_mtime_ns}" for f in files]
    return _hash(__version__, platform.python_version(), version("jinja2"), *stats)


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path)
    except sqlite3.DatabaseError as exc:
        if isinstance(exc, sqlite3.OperationalError):
            raise
        path.unlink()
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_WAIT_SECONDS)
    try:
        (held,) = database.execute("PRAGMA user_version").fetchone()
        with database:
            if held != _FORMAT:
                database.execute("DROP TABLE IF EXISTS reports")
                database.execute(f"PRAGMA user_version = {_FORMAT}")
            database.execute(
                "CREATE TABLE IF NOT EXISTS reports (key TEXT PRIMARY KEY, loads TEXT, report TEXT)"
            )
    except sqlite3.Error:
        database.close()
        raise
    return database


def _digest(text: str | None) -> str:
    return "" if text is None else _hash(text)


def _hash(*parts: str) -> str:
    made = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        made.update(len(data).to_bytes(8, "big") + data)
    return made.hexdigest()
