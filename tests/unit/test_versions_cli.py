"""The commands as users meet them: words, JSON, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from prefixctl.cli import versions
from prefixctl.errors import PrefixctlError

app = typer.Typer(pretty_exceptions_enable=False)
versions.register(app)


@app.callback()
def options(context: typer.Context) -> None:
    """Stands for the options of the real program."""
    context.obj = None


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(project)

    def call(*words: str) -> Ran:
        return invoke(words)

    return call


def invoke(words: Sequence[str]) -> Ran:
    result = CliRunner().invoke(app, list(words))
    if isinstance(result.exception, PrefixctlError):
        return Ran(result.exception.exit_code, result.stdout, str(result.exception))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def edit(project: Path, text: str = "Other words. " * 30) -> None:
    (project / "templates" / "support" / "system.md").write_text(text)


def test_bump_check_and_bump(run: Any, project: Path) -> None:
    check = run("bump", "--check")
    assert (check.code, check.out) == (5, "support: has no version yet\n")
    first = run("bump")
    assert first.code == 0
    assert first.out.startswith("support: version 1\n  target tiny: ")
    assert "commit it" in first.err
    assert run("bump", "--check").code == 0
    assert "nothing changed" in run("bump").err
    edit(project)
    check = run("bump", "--check")
    assert check.code == 5
    assert "support: changed since version 1 without a bump" in check.out
    assert "section 1, system_prompt (system.md)" in check.out
    assert "become cold" in check.out
    assert 'prefixctl bump support --reason "..."' in check.err
    assert run("bump").code == 2
    assert run("bump", "--reason", "tone", "--author", "Ann").code == 0
    lock = (project / "templates" / "prefixes.lock.yaml").read_text()
    assert "reason: tone\n    author: Ann\n" in lock


def test_json_everywhere(run: Any, project: Path) -> None:
    bumped = run("bump", "--format", "json").json()
    assert bumped["bumped"][0]["entry"]["version"] == 1
    edit(project)
    drift = run("bump", "--check", "--format", "json").json()["drifts"][0]
    assert drift["version"] == 1
    assert drift["change"]["targets"][0]["cold_tokens"] > 0
    run("bump", "--reason", "tone")
    published = run("publish", "--all", "--format", "json").json()
    assert published["prompts"] == [
        {"name": "support", "was_live": None, "live": 2, "previous": None}
    ]
    difference = run("diff", "support", "1", "2", "--format", "json").json()
    assert difference["parts"] == ["section 1, system_prompt (system.md)"]
    history = run("history", "support", "--format", "json").json()
    assert [v["standing"] for v in history["versions"]] == ["absent", "live"]
    shown = run("show", "support@live", "--format", "json").json()
    assert shown["version"] == "live (2)"
    assert sum(len(s["text"]) for s in shown["spans"]) > 300
    collected = run("gc", "--dry-run", "--format", "json").json()
    assert (collected["versions"], collected["dry_run"]) == ([], True)
    edit(project, "Third words. " * 30)
    run("bump", "--reason", "third")
    run("publish", "support")
    back = run("rollback", "support", "--format", "json").json()
    assert back["prompts"] == [{"name": "support", "was_live": 3, "live": 2, "previous": None}]


def test_text_output(run: Any, project: Path) -> None:
    run("bump", "--author", "Ann")
    assert run("publish", "support").out == "support: live 1, previous none\n"
    assert run("publish", "support").out == "support: live 1 already, previous none\n"
    edit(project)
    run("bump", "--reason", "tone", "--author", "Ann", "--approver", "Bob", "--note", "why")
    assert run("publish", "support@2").out == "support: live 2 (was 1), previous 1\n"
    assert run("rollback", "support").out == "support: live 1 (was 2), previous none\n"
    assert run("rollback", "support", "--to", "2").out == "support: live 2 (was 1), previous 1\n"
    history = run("history", "support").out
    assert "2 [live]" in history
    assert "Ann, approved by Bob: tone" in history
    assert "1 of 1 releases changed the prefix (100%)" in history
    assert "rollback: 2 -> 1" in history
    difference = run("diff", "support", "1", "live").out
    assert difference.startswith("support: 1 -> live (2)\n")
    assert "+Other words." in difference
    assert "first other token" in difference
    assert "0 versions removed" in run("gc").err


def test_show_marks_blocks_and_the_prefix(run: Any) -> None:
    shown = run("show", "support")
    assert "▕1▏" in shown.out
    assert "end of the shared prefix" in shown.out
    assert "constant, request" in shown.err


def test_a_prompt_cannot_steer_the_terminal(run: Any, project: Path) -> None:
    run("bump")
    run("publish", "support")
    edit(project, "\x1b]0;owned\x07 \x9b2J [bold]markup[/bold]\n" * 20)
    for words in (("show", "support"), ("diff", "support", "1")):
        out = run(*words).out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert "\x9b" not in out
    assert "[bold]markup[/bold]" in run("diff", "support", "1").out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("publish",), 2),
        (("publish", "support", "--all"), 2),
        (("publish", "support"), 5),
        (("publish", "suport"), 2),
        (("publish", "support@x"), 2),
        (("publish", "support@"), 2),
        (("publish", "--all"), 3),
        (("rollback", "support"), 3),
        (("gc",), 3),
        (("diff", "suport"), 2),
        (("history", "suport"), 2),
        (("show", "support@9"), 3),
        (("show", "support@live"), 3),
        (("show", "support", "--target", "tini"), 3),
        (("bump", "nobody"), 2),
    ],
)
def test_exit_codes(run: Any, words: tuple[str, ...], code: int) -> None:
    ran = run(*words)
    assert ran.code == code
    assert ran.out == ""


def test_the_author_is_git_s_user(run: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(project / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    (project / "gitconfig").write_text("[user]\n  name = Zoë Q\n  email = z@example.org\n")
    entry = run("bump", "--format", "json").json()["bumped"][0]["entry"]
    assert entry["author"] == "Zoë Q <z@example.org>"


def test_without_git_the_system_s_user(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setenv("LOGNAME", "operator")
    entry = run("bump", "--format", "json").json()["bumped"][0]["entry"]
    assert entry["author"] == "operator"


def test_commands_import_nothing_heavy() -> None:
    code = (
        "import sys; import prefixctl.cli.versions; "
        "print([m for m in ('pydantic', 'jinja2', 'sqlite3', 'tokenizers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
