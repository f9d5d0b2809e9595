"""`publish`, `rollback`, `gc` and reading from the registry."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from prefixctl.api.versions import (
    bump_prompts,
    publish_prompts,
    remove_expired,
    rollback_prompt,
)
from prefixctl.config import Config, load_config
from prefixctl.errors import (
    DriftError,
    LockError,
    NothingToDoError,
    PrefixctlError,
    RegistryError,
    UnreachableError,
    UsageError,
)
from prefixctl.registry.publish import (
    AliasChange,
    Wanted,
    load_live,
    load_published,
    load_version,
)
from prefixctl.registry.store import open_store
from prefixctl.registry.store.base import Alias, Stamp

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def config_of(project: Path) -> Config:
    return load_config(project / "prefixctl.yaml")


def release(project: Path, system: bytes, *, day: float = 0) -> AliasChange:
    """One more version, bumped and published."""
    (project / "templates" / "support" / "system.md").write_bytes(system)
    config = config_of(project)
    bump_prompts(config, reason="r", author="Ann", now=NOW)
    return publish(project, day=day)


def publish(project: Path, version: int | None = None, *, day: float = 0) -> AliasChange:
    wanted = [Wanted(name="support", version=version)]
    now = NOW + timedelta(days=day)
    return publish_prompts(config_of(project), wanted, by="Ann", now=now)[0]


def rollback(project: Path, to: int | None = None) -> AliasChange:
    return rollback_prompt(config_of(project), "support", to, by="Ann", now=NOW)


def digests(project: Path) -> dict[str, str]:
    folder = project / "templates" / "support"
    return {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.is_file()
    }


TEXTS = [
    b"Line one.\nLine two.\n" * 20,
    b"\xef\xbb\xbfBOM first.\r\nCRLF.\rBare CR.  \t\nspaces behind   \n\n\n" * 5,
    "末尾没有换行，也有空格  ".encode() * 20,
]


class TestRollback:
    """The case `rollback-bytes`."""

    def test_every_file_is_the_old_one_byte_for_byte(self, project: Path) -> None:
        release(project, TEXTS[0])
        release(project, TEXTS[1])
        old = digests(project)
        release(project, TEXTS[2])
        tree = digests(project)
        assert rollback(project) == AliasChange(name="support", was_live=3, live=2, previous=1)
        live = load_version(config_of(project), "support")
        assert {f: hashlib.sha256(b).hexdigest() for f, b in live.files.items()} == old
        assert live.files["system.md"] == TEXTS[1]
        assert digests(project) == tree

    def test_a_second_one_goes_further_back_and_publish_goes_forward(self, project: Path) -> None:
        for text in TEXTS:
            release(project, text)
        assert [rollback(project).live, rollback(project).live] == [2, 1]
        with pytest.raises(RegistryError, match="no earlier version"):
            rollback(project)
        assert publish(project).live == 3
        assert rollback(project, to=2).live == 2

    def test_an_unknown_name(self, project: Path) -> None:
        release(project, TEXTS[0])
        with pytest.raises(RegistryError) as caught:
            rollback_prompt(config_of(project), "suport", by="Ann")
        assert caught.value.hint == "did you mean support?"

    def test_without_a_registry(self, project: Path) -> None:
        with pytest.raises(RegistryError, match="no registry here yet"):
            rollback(project)
        assert not config_of(project).registry_path.exists()


class TestPublish:
    def test_text_and_keys_of_one_version(self, project: Path) -> None:
        release(project, TEXTS[0])
        release(project, TEXTS[1])
        for ref, number in ((Alias.LIVE, 2), (Alias.PREVIOUS, 1), (1, 1)):
            published = load_published(config_of(project), "support", ref)
            assert published.entry.version == number
            assert published.prompt.origin == f"support@{number}"
            assert published.prompt.content_digest() == published.entry.content.digest

    def test_again_is_no_change(self, project: Path) -> None:
        release(project, TEXTS[0])
        assert not publish(project).is_new

    def test_an_unbumped_work_tree_is_drift(self, project: Path) -> None:
        release(project, TEXTS[0])
        (project / "templates" / "support" / "tools.json").write_text("[]")
        assert not publish(project).is_new  # the registry holds version 1, so it can be served
        (project / "templates" / "support" / "system.md").write_bytes(TEXTS[1])
        bump_prompts_without_tools(project)
        with pytest.raises(DriftError, match="is not version 2"):
            publish(project)

    def test_a_target_that_changed_since_the_bump_is_drift(self, project: Path) -> None:
        bump_prompts(config_of(project), reason="r", author="Ann", now=NOW)
        path = project / "prefixctl.yaml"
        path.write_text(path.read_text().replace("tiny-model", "other"))
        with pytest.raises(DriftError, match="model tiny-model -> other"):
            publish(project)

    def test_never_bumped(self, project: Path) -> None:
        with pytest.raises(DriftError, match="has no version yet"):
            publish(project)
        with pytest.raises(NothingToDoError):
            publish_prompts(config_of(project), by="Ann")

    def test_unknown_names_and_versions(self, project: Path) -> None:
        release(project, TEXTS[0])
        with pytest.raises(UsageError, match="no prompt"):
            publish_prompts(config_of(project), [Wanted(name="suport")], by="Ann")
        with pytest.raises(LockError, match="the newest is 1"):
            publish(project, 7)

    def test_an_old_version_from_the_registry(self, project: Path) -> None:
        release(project, TEXTS[0])
        release(project, TEXTS[1])
        assert publish(project, 1) == AliasChange(name="support", was_live=2, live=1, previous=2)

    def test_an_old_version_that_was_never_published(self, project: Path) -> None:
        config = config_of(project)
        bump_prompts(config, reason="r", author="Ann", now=NOW)
        release(project, TEXTS[1])
        with pytest.raises(DriftError, match="does not hold version 1") as caught:
            publish(project, 1)
        assert caught.value.hint and "check out the commit" in caught.value.hint

    def test_all_are_checked_before_one_moves(self, project: Path) -> None:
        release(project, TEXTS[0])
        other = project / "templates" / "zebra"
        other.mkdir()
        for file in (project / "templates" / "support").iterdir():
            (other / file.name).write_bytes(file.read_bytes())
        (project / "templates" / "support" / "system.md").write_bytes(TEXTS[1])
        bump_prompts(config_of(project), reason="r", author="Ann", now=NOW)
        (other / "system.md").write_bytes(b"not bumped")
        with pytest.raises(DriftError, match="zebra"):
            publish_prompts(config_of(project), by="Ann")
        assert load_version(config_of(project), "support").files["system.md"] == TEXTS[0]

    def test_a_version_of_another_branch_is_refused(self, project: Path) -> None:
        release(project, TEXTS[0])
        config_of(project).lock_path.unlink()
        with pytest.raises(RegistryError, match="a version never changes"):
            release(project, TEXTS[1])

    def test_unversioned_prompts_are_bumped_on_the_way(self, project: Path) -> None:
        path = project / "prefixctl.yaml"
        path.write_text(path.read_text() + "prefix_cache: {versioned: false}\n")
        assert publish(project).live == 1
        (project / "templates" / "support" / "system.md").write_bytes(TEXTS[1])
        assert publish_prompts(config_of(project), by="Ann")[0].live == 2

    def test_live_versions_of_all(self, project: Path) -> None:
        release(project, TEXTS[0])
        assert [p.entry.version for p in load_live(config_of(project))] == [1]
        with pytest.raises(RegistryError, match="suport"):
            load_live(config_of(project), ["suport"])


class TestGc:
    def test_retention_and_dry_run(self, project: Path) -> None:
        for day, text in enumerate(TEXTS):
            release(project, text, day=day)
        config = config_of(project)
        early = remove_expired(config, now=NOW + timedelta(days=8.9))
        assert early.versions == ()
        late = NOW + timedelta(days=9)
        plan = remove_expired(config, now=late, dry_run=True)
        assert [r.version for r in plan.versions] == [1]
        assert load_version(config, "support", 1)
        assert remove_expired(config, now=late) == plan
        with pytest.raises(RegistryError, match="no version 1"):
            load_version(config, "support", 1)
        assert rollback(project).live == 2


class TestDamage:
    """Nothing but what was published is ever served."""

    def test_a_flipped_byte_in_a_blob(self, project: Path) -> None:
        release(project, TEXTS[0])
        with closing(sqlite3.connect(config_of(project).registry_path)) as db:
            db.execute("UPDATE blobs SET data = CAST(replace(data, 'one', 'two') AS BLOB)")
            db.commit()
        with pytest.raises(RegistryError, match="damaged and not served"):
            load_version(config_of(project), "support")

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE versions SET record = replace(record, 'shared_tokens\":', 'shared_tokens\":1')",
            "UPDATE versions SET version = 2",
            "DELETE FROM files WHERE path = 'tools.json'",
            "UPDATE versions SET seal = 'x'",
            "UPDATE versions SET published_at = 'x'",
            "UPDATE moves SET action = 'x'",
        ],
    )
    def test_other_damage(self, project: Path, statement: str) -> None:
        release(project, TEXTS[0])
        config = config_of(project)
        with closing(sqlite3.connect(config.registry_path)) as db:
            db.execute(statement)
            db.commit()
        with pytest.raises(RegistryError), closing(open_store(config)) as store:
            load_version(config, "support")
            store.state(store.names()[0])

    def test_random_bytes_are_never_served(self, project: Path) -> None:
        for text in TEXTS:
            release(project, text)
        config = config_of(project)
        sound = config.registry_path.read_bytes()
        dice = random.Random(3)
        refused = 0
        for _ in range(150):
            broken = bytearray(sound)
            for _ in range(8):
                broken[dice.randrange(len(broken))] ^= 1 << dice.randrange(8)
            config.registry_path.write_bytes(broken)
            try:
                prompt = load_version(config, "support")
            except PrefixctlError as exc:
                assert exc.exit_code in {3, 4}
                refused += 1
            else:
                assert prompt.files["system.md"] in TEXTS
        assert refused

    @pytest.mark.parametrize("content", [b"hello, no database", b"SQLite format 3\x00" + b"x" * 99])
    def test_no_sqlite_file(self, project: Path, content: bytes) -> None:
        path = config_of(project).registry_path
        path.parent.mkdir()
        path.write_bytes(content)
        with pytest.raises(RegistryError, match="not a registry, or damaged"):
            release(project, TEXTS[0])
        assert path.read_bytes() == content

    def test_a_database_of_another_program(self, project: Path) -> None:
        path = config_of(project).registry_path
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE cats (name)")
        with pytest.raises(RegistryError, match="another program"):
            release(project, TEXTS[0])

    def test_a_registry_from_the_future(self, project: Path) -> None:
        release(project, TEXTS[0])
        with closing(sqlite3.connect(config_of(project).registry_path)) as db:
            db.execute("PRAGMA user_version = 2")
        with pytest.raises(RegistryError, match="schema 2"):
            load_version(config_of(project), "support")

    def test_an_empty_file_is_a_new_registry(self, project: Path) -> None:
        path = config_of(project).registry_path
        path.parent.mkdir()
        path.touch()
        with pytest.raises(RegistryError, match="no registry here yet"):
            rollback(project)
        assert release(project, TEXTS[0]).live == 1


class TestUnreachable:
    def test_a_folder_that_cannot_be_made(self, project: Path) -> None:
        (project / ".prefixctl").write_text("a file")
        with pytest.raises(UnreachableError, match="folder cannot be made"):
            release(project, TEXTS[0])

    def test_a_folder_in_the_file_s_place(self, project: Path) -> None:
        config_of(project).registry_path.mkdir(parents=True)
        with pytest.raises(UnreachableError):
            release(project, TEXTS[0])

    def test_a_writer_that_never_ends(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("prefixctl.registry.store.sqlite_file.BUSY_SECONDS", 0.05)
        release(project, TEXTS[0])
        with closing(sqlite3.connect(config_of(project).registry_path)) as db:
            db.execute("BEGIN EXCLUSIVE")
            with pytest.raises(UnreachableError, match="another process"):
                release(project, TEXTS[1])
        assert release(project, TEXTS[1]).live == 2

    def test_a_full_disk_keeps_the_old_version(self, project: Path) -> None:
        release(project, TEXTS[0])
        config = config_of(project)
        store = open_store(config)
        with closing(store):
            store._db.execute("PRAGMA max_page_count = 1")  # type: ignore[attr-defined]
            loaded = store.load(store.names()[0], 1)
            big = type(loaded)(
                name=loaded.name, version=2, id=loaded.id, record=b"", files={"f": b"x" * 10**6}
            )
            with pytest.raises(UnreachableError, match="full"):
                store.publish(big, Stamp(at=NOW, by="Ann"))
        assert load_published(config, "support").entry.version == 1


def bump_prompts_without_tools(project: Path) -> None:
    """Bump with sound tools, then leave other tools in the work tree."""
    path = project / "templates" / "support" / "tools.json"
    path.write_text('[{"type": "function", "function": {"name": "a"}}]')
    bump_prompts(config_of(project), reason="r", author="Ann", now=NOW)
    path.write_text('[{"type": "function", "function": {"name": "b"}}]')
