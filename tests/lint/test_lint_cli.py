"""The command: output, exit codes, and never a clean pass of nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from linting import static
from typer.testing import CliRunner

from prefixctl.api.lint import lint_paths
from prefixctl.cli import lint as commands
from prefixctl.config import load_config
from prefixctl.errors import InputError, NothingToDoError, PrefixctlError, UsageError

BAD = "{{ now }}\n" + static(60)
WARN = "{{ today }}\n" + static(60)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()

    @app.callback()
    def options(context: typer.Context) -> None:
        context.obj = None

    commands.register(app)

    def call(*args: str):
        result = CliRunner().invoke(app, list(args))
        if isinstance(result.exception, PrefixctlError):
            raise result.exception
        return result

    return call


def write(name: str, text: str) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_text_output(run):
    write("p.j2", "【当前时间】 {{ now }}\n" + static(60))
    result = run("lint", "p.j2")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("p.j2:1:8: error PFX101 `now` changes every second")
    assert lines[1] == "  1 | 【当前时间】 {{ now }}"
    assert lines[2] == "    |              ^"
    assert lines[3].startswith("  advice: ")
    assert lines[-1].startswith("1 file: 1 break; 1 finding (1 error); about ")


def test_json_output(run):
    write("a.j2", BAD)
    write("b.j2", "{{ topn }}\n" + static(60))
    result = run("lint", "a.j2", "b.j2", "--format", "json")
    report = json.loads(result.stdout)
    assert report["schema"] == 1
    first, second = report["files"]
    assert [f["verdict"] for f in report["files"]] == ["break", "ok"]
    assert set(first) >= {
        "path", "verdict", "prefix_tokens", "total_tokens", "full_blocks", "tokens_lost",
        "tokens_exact", "findings",
    }  # fmt: skip
    (finding,) = first["findings"]
    assert set(finding) >= {
        "rule", "name", "severity", "confidence", "line", "column", "variable", "volatility",
        "message", "advice", "tokens_lost",
    }  # fmt: skip
    assert (finding["volatility"], finding["severity"]) == ("second", "error")
    (value,) = second["values"]
    assert (value["variable"], value["volatility"], value["confidence"]) == (
        "topn", "unknown", "low",
    )  # fmt: skip
    assert report["summary"]["verdicts"] == {"ok": 1, "warn": 0, "break": 1, "error": 0}


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        (BAD, [], 1),
        (BAD, ["--fail-on", "never"], 0),
        (WARN, [], 0),
        (WARN, ["--fail-on", "warning"], 1),
        (WARN, ["--fail-on", "error"], 0),
        ("{{ region }}\n" + static(60), ["--fail-on", "info"], 1),
        (static(60), ["--fail-on", "info"], 0),
        ("{% if %}", ["--fail-on", "never"], 3),
        (BAD + "{% if %}", [], 3),
    ],
)
def test_exit_codes(run, text, options, code):
    write("p.j2", text)
    assert run("lint", "p.j2", *options).exit_code == code


def test_fail_on_of_the_config(run):
    write("prefixctl.yaml", "lint: {fail_on: warning}\n")
    write("p.j2", WARN)
    assert run("lint", "p.j2").exit_code == 1
    assert run("lint", "p.j2", "--fail-on", "error").exit_code == 0


def test_one_broken_file_does_not_hide_the_others(run):
    write("prompts/a.j2", "{% if %}")
    write("prompts/b.j2", BAD)
    result = run("lint", "prompts", "--format", "json")
    assert result.exit_code == 3
    assert [f["verdict"] for f in json.loads(result.stdout)["files"]] == ["error", "break"]


@pytest.mark.parametrize("args", [["missing"], ["empty"], ["data"], ["code"], []])
def test_nothing_to_lint_is_no_clean_pass(run, args):
    Path("empty").mkdir()
    write("data/values.json", '{"a": 1}')
    write("data/notes.md", "Some notes.")
    write("code/main.py", "x = 1")
    with pytest.raises(InputError) as caught:
        run("lint", *args)
    assert caught.value.exit_code == 3
    assert isinstance(caught.value, NothingToDoError) or args in ([], ["missing"])


def test_a_file_of_another_kind_is_no_clean_pass(run):
    write("main.py", "x = 1")
    assert run("lint", "main.py").exit_code == 3


def test_folders(run):
    for name in (
        "a.j2",
        "sub/b.md",
        ".git/c.j2",
        "node_modules/d.j2",
        "README.md",
        "prompts/e.txt",
    ):
        write(name, BAD if not name.endswith("e.txt") else static(60))
    write("notes.txt", "Nothing to see.")
    write("docs/howto.md", "Write `{{ now }}` so:\n```\n{{ now }} " + static(60) + "```\n")
    write("values.yaml", "a: [1")
    result = run("lint", ".", "--format", "json", "--fail-on", "never")
    paths = [f["path"] for f in json.loads(result.stdout)["files"]]
    assert paths == ["a.j2", "prompts/e.txt", "sub/b.md"]
    assert result.exit_code == 0


def test_excluded_paths(run):
    write("prefixctl.yaml", 'lint: {exclude: ["old/*"]}\n')
    write("old/a.j2", BAD)
    write("b.j2", static(60))
    assert run("lint", ".").exit_code == 0
    assert run("lint", "old/a.j2").exit_code == 1


def test_rule_pages(run):
    assert run("rule", "PFX101").stdout.startswith("# PFX101 clock-in-prefix")
    assert "PFX201" in run("rule").stdout
    with pytest.raises(UsageError):
        run("rule", "PFX1")


def test_exclude_is_relative_to_the_configuration(tmp_path, monkeypatch):
    """Wherever lint is started and however the folder is named."""
    (tmp_path / "templates" / "bad").mkdir(parents=True)
    (tmp_path / "templates" / "bad" / "a.j2").write_text(BAD)
    (tmp_path / "templates" / "good.j2").write_text(static(60))
    (tmp_path / "prefixctl.yaml").write_text('lint: {exclude: ["templates/bad/*"]}\n')
    config = load_config(tmp_path / "prefixctl.yaml")
    monkeypatch.chdir(tmp_path / "templates")
    for path in (Path(), Path("bad/..").resolve(), tmp_path / "templates"):
        names = [Path(f.path).name for f in lint_paths(config, [path]).files]
        assert names == ["good.j2"]
    (named,) = lint_paths(config, [Path("bad/a.j2")]).files
    assert named.findings


def test_what_lint_does_not_know_is_said_in_one_line_each(run, tmp_path):
    folder = tmp_path / "unseen"
    (folder / "src").mkdir(parents=True)
    names = ("moment", "ref_no", "thing", "other_thing", "tone")
    holes = " ".join(f"{{{{ {n} }}}}" for n in names)
    (folder / "a.jinja").write_text(f"Some words ahead. {holes}\n")
    (folder / "src" / "app.py").write_text('TEXT = "You are a helpful assistant."\n')
    (folder / "src" / "b.ts").write_text("export const a = 1\n")
    lines = run("lint", str(folder)).stdout.splitlines()
    unknown = [x for x in lines if "unknown:" in x]
    assert unknown == [
        "4 values unknown: moment, ref_no, thing, ...; declare how often they change, or use "
        "--sample"
    ]
    (left,) = [x for x in lines if "not looked at" in x]
    assert left.startswith("2 source files not looked at (")
    assert "app.py, ...): name what holds prompts" in left
    value = json.loads(run("lint", str(folder), "--format", "json").stdout)
    assert value["summary"]["passed_over"] == 2
    one = run("lint", str(folder / "a.jinja")).stdout
    assert "not looked at" not in one


def test_a_diff_says_which_findings_have_no_fix(run):
    write("p.j2", BAD)
    done = run("lint", "--diff", "p.j2")
    assert done.stdout == ""
    assert "no fix for PFX101 at p.j2:1; --unsafe-fixes moves lines as well" in done.stderr
    write("q.j2", "Be brief.\n" + static(60))
    assert "no fix" not in run("lint", "--diff", "q.j2").stderr
