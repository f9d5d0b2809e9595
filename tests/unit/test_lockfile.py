"""prefixes.lock.yaml: round trips, merges with real git, tampering, failing writes."""

from __future__ import annotations

import errno
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixctl.core.changes import block_chain
from prefixctl.core.prompt import SectionKind, digest_of
from prefixctl.core.versions import (
    Content,
    Lock,
    SectionRecord,
    Signature,
    TargetRecord,
    successor,
)
from prefixctl.errors import LockError
from prefixctl.ids import PrefixKey, PromptName
from prefixctl.sources import lockfile
from prefixctl.sources.lockentry import decode_entry, encode_entry
from prefixctl.sources.lockfile import dump_lock, load_lock, parse_lock, update_lock

FILE = "prefixes.lock.yaml"


def bumped(lock: Lock, name: str, text: str, *, author: str = "Ann", reason: str = "r") -> Lock:
    digest = digest_of(text.encode())
    section = SectionRecord(
        kind=SectionKind.SYSTEM_PROMPT,
        role="system",
        file="system.md",
        sha256=digest.removeprefix("sha256:"),
    )
    ids = [len(text), *text.encode()]
    record = TargetRecord(
        key=PrefixKey("pk1:" + digest.removeprefix("sha256:")),
        shared_tokens=len(ids),
        request_tokens=len(ids) + 3,
        block_size=4,
        full_blocks=len(ids) // 4,
        expected_hit_tokens=len(ids) // 4 * 4,
        governed=True,
        material={"model": "m", "tokenizer": digest},
        blocks=block_chain(ids, 4),
    )
    content = Content(
        digest=digest, sections=(section,), includes={}, parameters={"q": "0123456789abcdef"}
    )
    signature = Signature(reason=reason, author=author, date=datetime(2026, 1, 1, tzinfo=UTC))
    entry = successor(lock.newest(PromptName(name)), content, {"t": record}, signature)
    return lock.with_entry(PromptName(name), entry)


def make_lock(*names: str, versions: int = 2) -> Lock:
    lock = Lock(path=FILE, prompts={})
    for name in names:
        for version in range(versions):
            lock = bumped(lock, name, f"{name} text {version}")
    return lock


def refused(text: str) -> LockError:
    with pytest.raises(LockError) as caught:
        parse_lock(text.encode(), FILE)
    assert caught.value.exit_code == 3
    assert caught.value.path == FILE
    return caught.value


class TestRoundTrip:
    def test_what_is_written_is_read(self) -> None:
        lock = make_lock("a", "b", "客服")
        data = dump_lock(lock)
        assert parse_lock(data, FILE).prompts == lock.prompts
        assert dump_lock(parse_lock(data, FILE)) == data

    @settings(max_examples=50, deadline=None)
    @given(st.text(), st.text())
    def test_any_words_survive_or_are_refused(
        self, tmp_path_factory: pytest.TempPathFactory, author: str, reason: str
    ) -> None:
        path = tmp_path_factory.mktemp("lock") / FILE
        lock = bumped(make_lock("a"), "a", "more", author=author, reason=reason)
        try:
            update_lock(path, lambda _: lock)
        except LockError:
            odd = [c for c in author + reason if c < " " or c in "\x85\u2028\u2029\ufeff"]
            assert odd
            assert not path.exists()
        else:
            assert load_lock(path).prompts == lock.prompts

    def test_an_entry_survives_the_registry(self) -> None:
        entry = make_lock("a").prompts[PromptName("a")][1]
        assert decode_entry(encode_entry(entry), "a@2") == entry

    def test_a_missing_file_holds_no_versions(self, tmp_path: Path) -> None:
        assert load_lock(tmp_path / FILE).prompts == {}

    def test_an_empty_lock(self) -> None:
        assert parse_lock(dump_lock(Lock(path=FILE, prompts={})), FILE).prompts == {}

    def test_the_file_says_what_it_is(self) -> None:
        head = dump_lock(make_lock("a")).decode().splitlines()[0]
        assert head.startswith("#")
        assert "prefixctl bump" in head


class TestRefused:
    def test_an_edited_entry(self) -> None:
        text = dump_lock(make_lock("a", "b")).decode()
        error = refused(text.replace("shared_tokens: 9", "shared_tokens: 10", 1))
        assert error.message.startswith("version 1 of 'a' was edited")
        assert error.line == text.splitlines().index("  - version: 1") + 1

    def test_a_broken_chain(self) -> None:
        lock = make_lock("a", versions=3)
        first, _, third = lock.prompts[PromptName("a")]
        cut = Lock(path=FILE, prompts={PromptName("a"): (first, third)})
        error = refused(dump_lock(cut).decode())
        assert "has version 3 where 2 belongs" in error.message
        assert error.line

    def test_one_version_twice_names_both_lines(self) -> None:
        base = make_lock("a", versions=1)
        ours = bumped(base, "a", "ours", reason="tone")
        theirs = bumped(base, "a", "theirs", author="Bob", reason="tools")
        name = PromptName("a")
        joined = (*ours.prompts[name], theirs.prompts[name][-1])
        text = dump_lock(Lock(path=FILE, prompts={name: joined})).decode()
        error = refused(text)
        lines = [i for i, line in enumerate(text.splitlines(), 1) if line == "  - version: 2"]
        assert error.message.endswith(f"(lines {lines[0]} and {lines[1]})")
        assert "Ann (tone) and Bob (tools)" in error.message
        assert error.hint and "bump` again" in error.hint

    @pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "=======", ">>>>>>> branch", "||||||| 1a"])
    def test_conflict_markers(self, marker: str) -> None:
        lines = dump_lock(make_lock("a", "b")).decode().splitlines()
        place = lines.index("  b:") + 3
        error = refused("\n".join([*lines[:place], marker, *lines[place:]]))
        assert error.message == f"git conflict markers from line {place + 1} on at b"
        assert error.line == place + 1

    def test_a_schema_from_the_future(self) -> None:
        text = dump_lock(make_lock("a")).decode().replace("schema: 1", "schema: 2\nnew: {}")
        error = refused(text)
        assert "schema 2 is newer" in error.message
        assert error.line == 4

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ("parent: null", "parant: null", "parent"),
            ("version: 1", "version: 0", "version"),
            ("2026-01-01T00:00:00+00:00", "yesterday", "no date"),
            ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00", "time zone"),
            ("content: sha256:", "content: md5:", "content"),
            ("blocks: ", "blocks: '*'", "base64|YAML"),
            ("prompts:", "prompts: [", "YAML"),
        ],
    )
    def test_other_damage_names_the_line(self, old: str, new: str, words: str) -> None:
        error = refused(dump_lock(make_lock("a")).decode().replace(old, new, 1))
        assert any(word in str(error) for word in words.split("|"))
        assert error.line

    @settings(max_examples=40, deadline=None)
    @given(st.data())
    def test_any_lost_line_is_found(self, data: st.DataObject) -> None:
        lines = dump_lock(make_lock("a", "b")).decode().splitlines(keepends=True)
        words = ("#", "  #", "    author", "    reason", "    parameters")
        body = [i for i, line in enumerate(lines) if not line.startswith(words)]
        place = data.draw(st.sampled_from(body))
        left = "".join(lines[:place] + lines[place + 1 :])
        with pytest.raises(LockError):
            parse_lock(left.encode(), FILE)


class TestWriting:
    def test_nothing_is_left_beside_the_file(self, tmp_path: Path) -> None:
        update_lock(tmp_path / FILE, lambda lock: bumped(lock, "a", "x"))
        assert [p.name for p in tmp_path.iterdir()] == [FILE]

    def test_no_change_writes_nothing(self, tmp_path: Path) -> None:
        update_lock(tmp_path / FILE, lambda lock: lock)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("call", ["write", "fsync", "replace"])
    def test_a_full_disk_leaves_the_old_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        path = tmp_path / FILE
        update_lock(path, lambda lock: bumped(lock, "a", "x"))
        before = path.read_bytes()

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, call, full)
        with pytest.raises(LockError, match="No space left"):
            update_lock(path, lambda lock: bumped(lock, "a", "y"))
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == [FILE]

    def test_a_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(LockError, match="no folder"):
            update_lock(tmp_path / "gone" / FILE, lambda lock: bumped(lock, "a", "x"))

    def test_a_writer_that_never_ends_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lockfile, "LOCK_WAIT_SECONDS", 0.05)

        def again(lock: Lock) -> Lock:
            return update_lock(tmp_path / FILE, lambda _: lock)

        with pytest.raises(LockError, match="another process"):
            update_lock(tmp_path / FILE, again)

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        update_lock(tmp_path / "real" / FILE, lambda lock: bumped(lock, "b", "x"))
        (tmp_path / FILE).symlink_to(tmp_path / "real" / FILE)
        update_lock(tmp_path / FILE, lambda lock: bumped(lock, "a", "x"))
        assert (tmp_path / FILE).is_symlink()
        assert load_lock(tmp_path / FILE).newest(PromptName("a"))
        assert load_lock(tmp_path / "real" / FILE).newest(PromptName("b"))

    def test_a_link_that_leads_nowhere_starts_no_new_history(self, tmp_path: Path) -> None:
        (tmp_path / FILE).symlink_to(tmp_path / "gone" / FILE)
        with pytest.raises(LockError, match="leads nowhere"):
            update_lock(tmp_path / FILE, lambda lock: bumped(lock, "a", "x"))
        with pytest.raises(LockError, match="leads nowhere"):
            load_lock(tmp_path / FILE)


class TestGitMerge:
    """Real merges: two branches from one base, each with one more version."""

    @pytest.fixture
    def repo(self, tmp_path: Path) -> Path:
        git(tmp_path, "init", "-q", "-b", "main")
        update_lock(tmp_path / FILE, lambda _: make_lock("agent", "rag", "support"))
        commit(tmp_path)
        return tmp_path

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [("agent", "support"), ("agent", "rag"), ("rag", "support"), ("agent", "base")],
    )
    def test_other_prompts_merge_cleanly(self, repo: Path, ours: str, theirs: str) -> None:
        assert self.merge(repo, ours, theirs) == 0
        lock = load_lock(repo / FILE)
        for name, text in ((ours, "ours"), (theirs, "theirs")):
            newest = lock.newest(PromptName(name))
            assert newest is not None
            assert newest.content.digest == digest_of(text.encode())
        assert dump_lock(lock) == (repo / FILE).read_bytes()

    def test_the_same_prompt_conflicts_and_the_loader_says_so(self, repo: Path) -> None:
        assert self.merge(repo, "rag", "rag") == 1
        with pytest.raises(LockError, match=r"git conflict markers .* at rag") as caught:
            load_lock(repo / FILE)
        assert caught.value.hint and "prefixctl bump" in caught.value.hint

    @pytest.mark.parametrize("driver", ["union", "ours", "theirs"])
    def test_a_forced_join_is_never_silent(self, repo: Path, driver: str) -> None:
        base = load_lock(repo / FILE)
        if driver == "union":
            (repo / ".gitattributes").write_text(f"{FILE} merge=union\n")
            self.merge(repo, "rag", "rag")
            with pytest.raises(LockError):
                load_lock(repo / FILE)
        else:
            self.merge(repo, "rag", "rag", "-X", driver)
            newest = load_lock(repo / FILE).newest(PromptName("rag"))
            other = base.newest(PromptName("rag"))
            assert newest and other
            assert newest.version == other.version + 1

    def merge(self, repo: Path, ours: str, theirs: str, *options: str) -> int:
        git(repo, "checkout", "-q", "-b", "theirs")
        update_lock(repo / FILE, lambda lock: bumped(lock, theirs, "theirs", author="Bob"))
        commit(repo)
        git(repo, "checkout", "-q", "main")
        update_lock(repo / FILE, lambda lock: bumped(lock, ours, "ours"))
        commit(repo)
        return git(repo, "merge", "-q", "--no-edit", *options, "theirs", check=False)


def git(folder: Path, *words: str, check: bool = True) -> int:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, env=environment, capture_output=True, check=check
    )
    return done.returncode


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
