"""Baselines: stable against line moves, honest about what is stale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from linting import static

from prefixctl.api.lint import lint_paths, save_baseline
from prefixctl.config import Config
from prefixctl.errors import InputError

BODY = static(60)
CLOCK = "Now: {{ now }}\n" + BODY


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.j2").write_text(CLOCK)
    (tmp_path / "b.j2").write_text("Be brief.\n" + CLOCK)
    return tmp_path


def known(folder: Path, *paths: str):
    config = Config().at(Path())
    return lint_paths(config, [Path(p) for p in paths], baseline=folder / "base.json")


def write(folder: Path, *paths: str) -> int:
    config = Config().at(Path())
    return save_baseline(config, lint_paths(config, [Path(p) for p in paths]), folder / "base.json")


def test_known_findings_are_no_findings(folder):
    assert write(folder, "a.j2", "b.j2") == 2
    report = known(folder, "a.j2", "b.j2")
    assert report.findings == ()
    assert [len(f.baselined) for f in report.files] == [1, 1]
    assert report.stale == ()


def test_lines_may_move_and_spaces_may_change(folder):
    write(folder, "a.j2", "b.j2")
    (folder / "a.j2").write_text("Two more.\nLines.\n  Now:   {{ now }} \n" + BODY)
    report = known(folder, "a.j2")
    assert report.findings == ()
    assert report.stale == ()


def test_another_finding_is_new(folder):
    write(folder, "a.j2", "b.j2")
    (folder / "a.j2").write_text("For {{ user_id }}\n" + CLOCK)
    assert [f.rule for f in known(folder, "a.j2").findings] == ["PFX103"]


def test_the_same_line_twice_is_known_once(folder):
    (folder / "c.j2").write_text("{# prefixctl: allow PFX102 x #}\n" + BODY)
    write(folder, "c.j2")
    (folder / "c.j2").write_text("{# prefixctl: allow PFX102 x #}\n" * 2 + BODY)
    report = known(folder, "c.j2")
    assert [f.location.line for f in report.findings] == [2]
    assert (
        len({f.fingerprint for file in report.files for f in (*file.findings, *file.baselined)})
        == 2
    )


def test_what_is_mended_or_gone_is_stale_and_what_was_not_linted_is_not(folder):
    (folder / "c.j2").write_text("{{ uuid4() }}\n" + BODY)
    write(folder, "a.j2", "b.j2", "c.j2")
    (folder / "a.j2").write_text(BODY)
    (folder / "c.j2").unlink()
    report = known(folder, "a.j2")
    assert [(k.path, k.rule) for k in report.stale] == [("a.j2", "PFX101"), ("c.j2", "PFX102")]


def test_it_is_the_same_wherever_lint_is_started(folder, monkeypatch):
    write(folder, "a.j2", "b.j2")
    inner = folder / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    report = lint_paths(
        Config().at(folder), [Path("../a.j2").resolve()], baseline=folder / "base.json"
    )
    assert report.findings == ()


def test_an_unreadable_file_is_never_known(folder):
    (folder / "d.j2").write_text("{% if %}")
    assert write(folder, "d.j2") == 0
    assert known(folder, "d.j2").unreadable


def test_the_file_is_sorted_small_and_written_at_once(folder):
    write(folder, "a.j2", "b.j2")
    kept = json.loads((folder / "base.json").read_text())
    assert kept["schema"] == 1
    assert [set(f) for f in kept["findings"]] == [{"path", "rule", "fingerprint"}] * 2
    assert sorted(p.name for p in folder.iterdir()) == ["a.j2", "b.j2", "base.json"]


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"schema": 9, "findings": []}', '"x"'])
def test_a_broken_baseline_is_a_clear_error(folder, text):
    if text is not None:
        (folder / "base.json").write_text(text)
    with pytest.raises(InputError) as caught:
        known(folder, "a.j2")
    assert caught.value.exit_code == 3
    assert "--write-baseline" in (caught.value.hint or "")
