"""API keys: made, stored as digests, listed, revoked."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from prefixctl.cli.main import app
from prefixctl.config import GroupConfig, TenancyConfig
from prefixctl.errors import ConfigError, UsageError
from prefixctl.gateway import keyfile
from prefixctl.gateway.groups import Groups
from prefixctl.gateway.keyfile import add_key, read_keys, revoke_keys
from prefixctl.gateway.keys import KeyRing, digest_key, parse_keys


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "conf" / "keys"


def test_a_key_opens_for_its_tenant_and_is_not_stored(file: Path) -> None:
    key = add_key(file, "acme", "the  web\nshop")
    other = add_key(file, "bolt")
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    ring = KeyRing(file)
    assert (ring.tenant_of(key), ring.tenant_of(other)) == ("acme", "bolt")
    assert ring.tenant_of(key + "x") is None
    assert [k.note for k in read_keys(file)] == ["the web shop", ""]


def test_a_revoked_key_is_refused_at_once_and_comments_stay(file: Path) -> None:
    key = add_key(file, "acme")
    file.write_text("# ours\n" + file.read_text())
    kept = add_key(file, "acme")
    ring = KeyRing(file)
    gone = revoke_keys(file, [digest_key(key)[:8]])
    assert [k.tenant for k in gone] == ["acme"]
    assert ring.refresh()
    assert ring.tenant_of(key) is None
    assert ring.tenant_of(kept) == "acme"
    assert file.read_text().startswith("# ours\n")
    assert not ring.refresh()


@pytest.mark.parametrize(
    "text",
    ["acme\u00a0{0}", "acme\u3000{0} a note", "bolt {1} a note\x0cacme {0}", "\ufeffacme {0}"],
)
def test_what_reads_as_a_key_is_revoked_as_one(text: str, file: Path) -> None:
    """Pasted text has more kinds of spaces, and of ends of lines, than one sees."""
    file.parent.mkdir()
    file.write_text(text.format(digest_key("old"), digest_key("other")) + "\n")
    assert KeyRing(file).tenant_of("old") == "acme"
    revoke_keys(file, [digest_key("old")[:8]])
    assert KeyRing(file).tenant_of("old") is None
    assert KeyRing(file).tenant_of("other") == ("bolt" if "bolt" in text else None)


def test_a_comment_that_quotes_a_digest_stays(file: Path) -> None:
    key = add_key(file, "acme")
    comment = f"#was {digest_key(key)}\n"
    file.write_text(comment + file.read_text())
    revoke_keys(file, [digest_key(key)[:8]])
    assert file.read_text() == comment


def test_a_link_to_the_file_stays_one(file: Path) -> None:
    key = add_key(file, "acme")
    link = file.parent.parent / "link"
    link.symlink_to(file)
    add_key(link, "bolt")
    revoke_keys(link, [digest_key(key)[:8]])
    assert link.is_symlink()
    assert [k.tenant for k in read_keys(file)] == ["bolt"]


def test_the_file_keeps_its_owner_and_its_rights(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root revokes, and the server is another user: it must be able to read the new file."""
    key = add_key(file, "acme")
    file.chmod(0o640)
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _, uid, gid: owners.append((uid, gid)))
    found = file.stat()
    add_key(file, "acme")
    assert owners == []
    real = os.fstat
    other = SimpleNamespace(st_uid=found.st_uid + 1, st_gid=found.st_gid)
    monkeypatch.setattr(keyfile.os, "fstat", lambda _: other)
    revoke_keys(file, [digest_key(key)[:8]])
    monkeypatch.setattr(keyfile.os, "fstat", real)
    assert owners == [(found.st_uid, found.st_gid)]
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_file_that_may_be_read_again_is_read_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new owner or new rights leave the time of the last change as it was."""
    gone = add_key(file, "acme")
    ring = KeyRing(file)
    revoke_keys(file, [digest_key(gone)[:8]])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", _refuse)
        assert ring.refresh()
        assert "cannot be read" in ring.fault
        assert not ring.refresh()  # told once
        assert ring.tenant_of(gone) == "acme"
    assert ring.refresh()
    assert ring.fault == ""
    assert ring.tenant_of(gone) is None
    assert not ring.refresh()


def _refuse(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_change_of_rights_is_a_change(file: Path) -> None:
    add_key(file, "acme")
    ring = KeyRing(file)
    file.chmod(0o640)
    assert ring.refresh()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("acme", "no SHA-256"),
        ("acme pfx-secret", "no SHA-256"),
        (f"a/b {'0' * 64}", "is no name"),
        (f"anonymous {'0' * 64}", "without a key"),
    ],
)
def test_a_wrong_line_is_named_and_not_quoted(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse_keys(f"# a\n{text}\n".encode(), "keys")
    assert caught.value.line == 2
    assert "pfx-secret" not in str(caught.value)


def test_a_name_that_is_none_and_an_id_that_is_unknown(file: Path) -> None:
    with pytest.raises(UsageError, match="is no name"):
        add_key(file, "a b")
    assert not file.exists()
    with pytest.raises(UsageError, match="no key"):
        revoke_keys(file, ["00000000"])


def _add(file: Path, count: int) -> None:
    for _ in range(count):
        add_key(file, "acme")


@pytest.mark.slow
def test_two_writers_lose_nothing(file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add, args=(file, 20)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(read_keys(file)) == 40
    assert [p.name for p in file.parent.iterdir()] == ["keys"]


def test_the_command(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    run = CliRunner().invoke
    with pytest.raises(ConfigError, match="no file for API keys"):
        run(app, ["keys", "list"], catch_exceptions=False, standalone_mode=False)
    with (project / "prefixctl.yaml").open("a") as file:
        file.write("gateway: {keys_file: keys}\n")
    key = run(app, ["keys", "add", "acme", "--note", "web"]).stdout.strip()
    assert key.startswith("pfx-")
    listed = json.loads(run(app, ["keys", "list", "--format", "json"]).stdout)
    assert listed["keys"] == [{"id": digest_key(key)[:8], "tenant": "acme", "note": "web"}]
    assert "acme" in run(app, ["keys", "revoke", digest_key(key)[:8]]).stdout
    assert run(app, ["keys", "list"]).stdout == ""


def test_groups_and_who_belongs_to_them() -> None:
    groups = Groups(
        {
            "shop": GroupConfig(tenants=("acme",), prompts=("support",)),
            "rest": GroupConfig(tenants=("*",), prompts=("support", "news")),
        }
    )
    assert [groups.of(t) for t in ("acme", "bolt", "anonymous")] == ["shop", "rest", None]
    assert groups.may_use("shop", "support")
    assert not groups.may_use("shop", "news")
    assert not groups.may_use(None, "news")
    assert groups.may_use(None, "unlisted")
    assert Groups({}).of("acme") is None


def test_a_tenant_in_two_groups_is_refused() -> None:
    groups = {"a": {"tenants": ["x"]}, "b": {"tenants": ["x"]}}
    with pytest.raises(ValueError, match="'x' is in two groups, a and b"):
        TenancyConfig.model_validate({"groups": groups})


def test_nothing_of_a_wrong_file_is_shown() -> None:
    for line in (b"root:$6$planted:19000:0:99999:7:::", b"planted!", b"\xff planted"):
        with pytest.raises(ConfigError) as caught:
            parse_keys(line, "keys")
        assert "planted" not in str(caught.value) + str(caught.value.hint)
