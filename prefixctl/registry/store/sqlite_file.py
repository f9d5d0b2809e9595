"""The registry's SQLite file: opened, checked, and worked on in whole transactions.

A rollback journal with ``synchronous=EXTRA`` needs no second file between transactions and loses
nothing that was committed; a writer takes the write lock before it reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from prefixctl.errors import RegistryError, UnreachableError

SCHEMA_VERSION = 1
APPLICATION_ID = 0x70666378
"""Marks the file as ours in SQLite's header."""
BUSY_SECONDS = 10.0

_TABLES = (
    "CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE versions (prompt TEXT NOT NULL, version INTEGER NOT NULL, id TEXT NOT NULL,"
    " record BLOB NOT NULL, seal TEXT NOT NULL, published_at TEXT NOT NULL, retired_at TEXT,"
    " PRIMARY KEY (prompt, version))",
    "CREATE TABLE files (prompt TEXT NOT NULL, version INTEGER NOT NULL, path TEXT NOT NULL,"
    " digest TEXT NOT NULL REFERENCES blobs, PRIMARY KEY (prompt, version, path))",
    "CREATE TABLE serving (prompt TEXT NOT NULL, position INTEGER NOT NULL,"
    " version INTEGER NOT NULL, PRIMARY KEY (prompt, position))",
    "CREATE TABLE moves (seq INTEGER PRIMARY KEY, prompt TEXT NOT NULL, action TEXT NOT NULL,"
    " before INTEGER, after INTEGER NOT NULL, at TEXT NOT NULL, moved_by TEXT NOT NULL)",
)
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_PRIMARY_CODE = 0xFF


class Mode(StrEnum):
    """What a transaction does; a writer is alone from its first statement on."""

    READ = "DEFERRED"
    WRITE = "IMMEDIATE"


def open_file(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open the registry's file. Arguments and errors as in `SqliteStore`."""
    if create:
        _make_folder(path.parent)
    elif not path.exists():
        raise _missing(path)
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    with _explained(path):
        db = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        _set_up(db, path, create=create)
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection, path: Path, mode: Mode) -> Iterator[None]:
    """All statements of the block, or none.

    Raises:
        RegistryError: If the file is damaged.
        UnreachableError: If it is busy, full, read-only or gone.
    """
    with _explained(path):
        db.execute(f"BEGIN {mode.value}")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _set_up(db: sqlite3.Connection, path: Path, *, create: bool) -> None:
    """Check that the file is a registry of this version; make the tables of a new one."""
    with _explained(path):
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA synchronous = EXTRA")
    with transaction(db, path, Mode.WRITE if create else Mode.READ):
        schema = db.execute("PRAGMA user_version").fetchone()[0]
        owner = db.execute("PRAGMA application_id").fetchone()[0]
        empty = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if empty and create:
            for statement in _TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif empty:
            raise _missing(path)
        elif owner != APPLICATION_ID:
            raise RegistryError(
                "a SQLite file of another program",
                path=str(path),
                hint="set `registry.path:` in prefixctl.yaml",
            )
        elif schema != SCHEMA_VERSION:
            raise RegistryError(
                f"schema {schema}, but this prefixctl reads {SCHEMA_VERSION}",
                path=str(path),
                hint="upgrade prefixctl",
            )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise UnreachableError(
            f"the registry's folder cannot be made: {exc.strerror}", path=str(folder)
        ) from exc


def _missing(path: Path) -> RegistryError:
    return RegistryError(
        "no registry here yet", path=str(path), hint="publish a version: prefixctl publish NAME"
    )


def _damaged(why: str, path: Path) -> RegistryError:
    return RegistryError(
        f"not a registry, or damaged: {why}",
        path=str(path),
        hint="restore it from a backup, or move it away and publish again",
    )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """A driver's error in our words: damaged (3), or busy, full, read-only, gone (4)."""
    try:
        yield
    except UnicodeDecodeError as exc:  # raised over the driver's own message about a bad schema
        raise _damaged("its words are no text", path) from exc
    except sqlite3.Error as exc:
        code = getattr(exc, "sqlite_errorcode", 0) & _PRIMARY_CODE
        if code in _DAMAGED:
            raise _damaged(str(exc), path) from exc
        if code in _BUSY:
            raise UnreachableError(
                f"another process has held the registry for {BUSY_SECONDS:.0f} s",
                path=str(path),
                hint="try again",
            ) from exc
        raise UnreachableError(f"the registry cannot be used: {exc}", path=str(path)) from exc
