"""The cache: the same answer as without it, always."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from linting import CHAT_LOOP, static

from prefixctl.api import lint as api
from prefixctl.api.lint import CACHE_FOLDER, lint_paths
from prefixctl.config import Config
from prefixctl.errors import NothingToDoError
from prefixctl.lint import run
from prefixctl.lint.codec import dumps, loads

BODY = static(60)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read in full."""
    seen: list[str] = []

    def watched(file, *rest):
        seen.append(str(file.path))
        return plain(file, *rest)

    plain = run._lint_plain
    monkeypatch.setattr(run, "_lint_plain", watched)
    return seen


def lint(*paths: str, block_size: int | None = None):
    given_size = {"lint": {"block_size": block_size}} if block_size else {}
    config = Config.model_validate(given_size).at(Path())
    return lint_paths(config, [Path(p) for p in paths or ["."]], cache=True)


def test_unchanged_files_are_not_read_again(folder, reads):
    (folder / "a.j2").write_text("{# prefixctl: allow PFX103 x #}{{ now }}{{ user_id }}\n" + BODY)
    (folder / "b.md").write_text("Notes.")
    (folder / "c.jinja").write_text("{{ tools | tojson }}" + CHAT_LOOP)
    first = lint()
    assert reads == ["a.j2", "b.md", "c.jinja"]
    assert lint() == first
    assert len(reads) == 3
    (folder / "a.j2").write_text("{{ user_id }}\n" + BODY)
    assert [f.rule for f in lint().files[0].findings] == ["PFX103"]
    assert reads[3:] == ["a.j2"]


def test_included_templates_count(folder, reads):
    (folder / "a.j2").write_text('{% include "part.txt" %}{% include "none.txt" %}\n' + BODY)
    (folder / "part.txt").write_text("Hello.")
    assert lint("a.j2").findings == ()
    (folder / "part.txt").write_text("{{ now }}")
    assert [f.rule for f in lint("a.j2").findings] == ["PFX101"]
    (folder / "none.txt").write_text("{{ user_id }}")
    assert {f.rule for f in lint("a.j2").findings} == {"PFX101", "PFX103"}
    assert len(reads) == 3
    lint("a.j2")
    assert len(reads) == 3


def test_settings_and_names_count(folder, reads, monkeypatch):
    (folder / "a.j2").write_text("{{ now }}\n" + BODY)
    lint("a.j2")
    assert lint("a.j2", block_size=512).findings == ()
    lint(str(folder / "a.j2"))
    assert len(reads) == 3
    monkeypatch.setattr("prefixctl.lint.cache.code_fingerprint", lambda: "another version")
    lint("a.j2")
    assert len(reads) == 4


def test_a_file_without_prompts_stays_one_and_a_named_one_an_error(folder, reads):
    (folder / "notes.md").write_text("Notes.")
    for _ in range(2):
        with pytest.raises(NothingToDoError):
            lint(".")
    assert len(reads) == 1
    assert lint("notes.md").files[0].path == "notes.md"


def test_governed_prompts_and_broken_files_are_always_read(folder, monkeypatch):
    (folder / "bad.j2").write_text("{% if %}")
    (folder / "p").mkdir()
    (folder / "p" / "prompt.yaml").write_text("sections:\n- {kind: system_prompt, file: s.md}\n")
    (folder / "p" / "s.md").write_text(BODY)
    lint()
    with sqlite3.connect(CACHE_FOLDER / "reports.db") as database:
        assert database.execute("SELECT count(*) FROM reports").fetchone() == (0,)
    database.close()


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"x" * 200])
def test_a_broken_cache_is_an_empty_one(folder, content):
    (folder / "a.j2").write_text("{{ now }}\n" + BODY)
    first = lint("a.j2")
    (CACHE_FOLDER / "reports.db").write_bytes(content)
    assert lint("a.j2") == first
    assert lint("a.j2") == first


def test_a_broken_entry_is_none(folder):
    (folder / "a.j2").write_text("{{ now }}\n" + BODY)
    first = lint("a.j2")
    for text in ("{}", "x", '{"verdict": "ok"}', "[]"):
        with sqlite3.connect(CACHE_FOLDER / "reports.db") as database:
            database.execute("UPDATE reports SET report = ?", (text,))
        database.close()
        assert lint("a.j2") == first


def test_a_place_that_cannot_be_written_is_no_error(folder):
    (folder / ".prefixctl").write_text("a file")
    (folder / "a.j2").write_text("{{ now }}\n" + BODY)
    assert len(lint("a.j2").findings) == 1


def test_it_keeps_itself_out_of_git_and_is_off_by_default(folder):
    (folder / "a.j2").write_text(BODY)
    lint_paths(Config().at(Path()), [Path("a.j2")])
    assert not (folder / ".prefixctl").exists()
    lint("a.j2")
    assert (CACHE_FOLDER / ".gitignore").read_text() == "*\n"


def test_tokens_that_a_server_counts_are_not_kept():
    class Served:
        tokenizer = object.__new__(api.ServerTokenizer)

    assert api._settings(Config(), run.Setup(counter=api.EstimatedTokens()), Served()) is None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        st.sampled_from(
            ["{{ now }}", "{{ user_id }} é漢", "{{ x }}", "Plain.", "{{ d | tojson }}", "\r", ""]
        ),
        min_size=1,
        max_size=6,
    )
)
def test_reports_come_back_as_they_were(tmp_path, lines):
    path = tmp_path / "a.j2"
    path.write_bytes(("\n".join(lines) + "\n" + BODY).encode())
    (report,) = lint_paths(Config().at(tmp_path), [path]).files
    assert loads(dumps(report)) == report
    assert loads(dumps(report)).lines == report.lines
    assert loads(dumps(None)) is None
