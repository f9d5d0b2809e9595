"""The registry in SQLite: content-addressed bytes, versions, aliases and their history."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path

from prefixctl.core.prompt import digest_of
from prefixctl.core.serving import Serving, is_expired
from prefixctl.errors import RegistryError
from prefixctl.ids import Digest, PromptName
from prefixctl.registry.store.base import (
    Action,
    Alias,
    Collected,
    Move,
    Moved,
    PromptState,
    Release,
    Stamp,
    Stored,
    VersionRef,
)
from prefixctl.registry.store.sqlite_file import Mode, open_file, transaction


class SqliteStore:
    """A `prefixctl.registry.store.base.Store` in one file."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open the file.

        Args:
            path: The file.
            create: Make the file and its folder if they are missing.

        Raises:
            RegistryError: If it is missing, no SQLite file, or no registry of this version.
            UnreachableError: If it cannot be opened, read or written.
        """
        self._path = path
        self._db = open_file(path, create=create)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def publish(self, release: Release, stamp: Stamp) -> Moved:
        """See `Store.publish`."""
        with self._transaction(Mode.WRITE):
            row = self._db.execute(
                "SELECT id FROM versions WHERE prompt = ? AND version = ?",
                (release.name, release.version),
            ).fetchone()
            if row is None:
                self._insert(release, stamp)
            elif row[0] != release.id:
                raise RegistryError(
                    f"{release.name}@{release.version} was published before with other content, "
                    "and a version never changes",
                    path=str(self._path),
                    hint="bump again, so that the lock gives the new content a new number",
                )
            before = self._serving(release.name)
            after = before.published(release.version)
            self._move(release.name, Action.PUBLISH, before, after, stamp)
        return Moved(before=before, after=after)

    def rollback(self, name: PromptName, to: int | None, stamp: Stamp) -> Moved:
        """See `Store.rollback`."""
        with self._transaction(Mode.WRITE):
            if to is not None:
                self._version(name, to)
            before = self._serving(name)
            try:
                after = before.rolled_back(to)
            except ValueError as exc:
                raise RegistryError(
                    f"'{name}' has no earlier version to go back to",
                    path=str(self._path),
                    hint=f"name one that is kept: rollback {name} --to N (see history {name})",
                ) from exc
            self._move(name, Action.ROLLBACK, before, after, stamp)
        return Moved(before=before, after=after)

    def load(self, name: PromptName, ref: int | Alias) -> Release:
        """See `Store.load`."""
        with self._transaction(Mode.READ):
            version = self._version(name, ref)
            row = self._db.execute(
                "SELECT id, record, seal FROM versions WHERE prompt = ? AND version = ?",
                (name, version),
            ).fetchone()
            files = dict(
                self._db.execute(
                    "SELECT path, data FROM files JOIN blobs USING (digest)"
                    " WHERE prompt = ? AND version = ?",
                    (name, version),
                ).fetchall()
            )
        entry_id, record, seal = row or (
            Digest(""),
            b"",
            "",
        )  # a damaged index knows of a row that is gone
        release = Release(name=name, version=version, id=entry_id, record=record, files=files)
        release.check(seal)
        return release

    def state(self, name: PromptName) -> PromptState:
        """See `Store.state`."""
        with self._transaction(Mode.READ):
            versions = self._db.execute(
                "SELECT version, published_at, retired_at FROM versions WHERE prompt = ?"
                " ORDER BY version",
                (name,),
            ).fetchall()
            moves = self._db.execute(
                "SELECT action, before, after, at, moved_by FROM moves WHERE prompt = ?"
                " ORDER BY seq",
                (name,),
            ).fetchall()
            serving = self._serving(name)
        return PromptState(
            name=name,
            serving=serving,
            versions=tuple(
                Stored(version=v, published_at=_time(at), retired_at=_time(end) if end else None)
                for v, at, end in versions
            ),
            moves=tuple(
                Move(action=_action(what), before=before, after=after, at=_time(at), by=by)
                for what, before, after, at, by in moves
            ),
        )

    def names(self) -> list[PromptName]:
        """See `Store.names`."""
        with self._transaction(Mode.READ):
            rows = self._db.execute("SELECT DISTINCT prompt FROM versions ORDER BY 1").fetchall()
        return [PromptName(row[0]) for row in rows]

    def collect(self, now: datetime, retention: timedelta, *, dry_run: bool = False) -> Collected:
        """See `Store.collect`."""
        with self._transaction(Mode.READ if dry_run else Mode.WRITE):
            rows = self._db.execute(
                "SELECT prompt, version, retired_at FROM versions WHERE retired_at IS NOT NULL"
                " ORDER BY prompt, version"
            ).fetchall()
            expired = [(p, v) for p, v, end in rows if is_expired(_time(end), now, retention)]
            unused = self._only_in(expired)
            if not dry_run:
                self._remove(expired, unused)
        return Collected(
            versions=tuple(VersionRef(name=PromptName(p), version=v) for p, v in expired),
            blobs=len(unused),
            freed_bytes=sum(unused.values()),
        )

    def _transaction(self, mode: Mode) -> AbstractContextManager[None]:
        return transaction(self._db, self._path, mode)

    def _insert(self, release: Release, stamp: Stamp) -> None:
        self._db.execute(
            "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, NULL)",
            (
                release.name,
                release.version,
                release.id,
                release.record,
                release.seal(),
                stamp.at.isoformat(),
            ),
        )
        for path, data in sorted(release.files.items()):
            digest = digest_of(data)
            self._db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (digest, data))
            self._db.execute(
                "INSERT INTO files VALUES (?, ?, ?, ?)",
                (release.name, release.version, path, digest),
            )

    def _version(self, name: PromptName, ref: int | Alias) -> int:
        """The number behind a reference to a version that is kept."""
        if isinstance(ref, Alias):
            serving = self._serving(name)
            number = serving.live if ref is Alias.LIVE else serving.previous
        else:
            number = ref
        kept = [
            row[0]
            for row in self._db.execute("SELECT version FROM versions WHERE prompt = ?", (name,))
        ]
        if number is None or number not in kept:
            what = f"no version {ref}" if isinstance(ref, int) else f"no {ref.value} version"
            versions = ", ".join(map(str, sorted(kept)))
            raise RegistryError(
                f"{what} of '{name}' is kept",
                path=str(self._path),
                hint=f"kept: {versions}" if kept else f"publish it: prefixctl publish {name}",
            )
        return number

    def _serving(self, name: PromptName) -> Serving:
        rows = self._db.execute(
            "SELECT version FROM serving WHERE prompt = ? ORDER BY position", (name,)
        )
        return Serving(stack=tuple(row[0] for row in rows.fetchall()))

    def _move(
        self, name: PromptName, action: Action, before: Serving, after: Serving, stamp: Stamp
    ) -> None:
        """Write the aliases, when versions retired or came back, and the move itself."""
        if before == after:
            return
        self._write_serving(name, after)
        at = stamp.at.isoformat()
        self._db.execute(
            "UPDATE versions SET retired_at = CASE WHEN version IN (?, ?) THEN NULL"
            " ELSE coalesce(retired_at, ?) END WHERE prompt = ?",
            (after.live, after.previous, at, name),
        )
        self._db.execute(
            "INSERT INTO moves (prompt, action, before, after, at, moved_by)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (name, action.value, before.live, after.live, at, stamp.by),
        )

    def _write_serving(self, name: PromptName, serving: Serving) -> None:
        self._db.execute("DELETE FROM serving WHERE prompt = ?", (name,))
        for position, version in enumerate(serving.stack):
            self._db.execute("INSERT INTO serving VALUES (?, ?, ?)", (name, position, version))

    def _only_in(self, versions: list[tuple[str, int]]) -> dict[str, int]:
        """The bytes that no version but the given ones needs: digest to size."""
        rows = self._db.execute("SELECT prompt, version, digest FROM files").fetchall()
        gone = set(versions)
        kept = {digest for prompt, version, digest in rows if (prompt, version) not in gone}
        unused = {d for p, v, d in rows if (p, v) in gone and d not in kept}
        sizes = self._db.execute("SELECT digest, length(data) FROM blobs")
        return {digest: size for digest, size in sizes if digest in unused}

    def _remove(self, versions: list[tuple[str, int]], blobs: dict[str, int]) -> None:
        for prompt, version in versions:
            for table in ("files", "versions"):
                self._db.execute(
                    f"DELETE FROM {table} WHERE prompt = ? AND version = ?",  # noqa: S608
                    (prompt, version),
                )
        for prompt in {p for p, _ in versions}:
            name = PromptName(prompt)
            gone = {v for p, v in versions if p == prompt}
            self._write_serving(name, self._serving(name).without(gone))
        for digest in blobs:
            self._db.execute("DELETE FROM blobs WHERE digest = ?", (digest,))


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError) as exc:
        raise RegistryError(f"the registry is damaged: '{text}' is no time") from exc


def _action(text: str) -> Action:
    try:
        return Action(text)
    except ValueError as exc:
        raise RegistryError(f"the registry is damaged: '{text}' is no move") from exc
