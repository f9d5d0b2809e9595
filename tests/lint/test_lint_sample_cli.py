"""`lint --sample` as users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from linting import run_prefixctl

TEMPLATE = "A long enough beginning, then {{ here }} and {{ user_name }}.\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return lambda *words: run_prefixctl(monkeypatch, capsys, "lint", *words)


@pytest.fixture(autouse=True)
def files(tmp_path: Path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.jinja").write_text(TEMPLATE)
    (tmp_path / "v.yaml").write_text("- {here: one}\n- {here: two}\n")


def test_generated_values_agree(run):
    (Path("t") / "a.jinja").write_text(TEMPLATE.replace("here", "tone"))
    code, out, _ = run("t", "--sample")
    assert code == 0
    assert "a.jinja:1:1: agrees: the renders part at character " in out
    assert "by `user_name`, as lint says" in out
    assert out.endswith("  held constant: tone\n1 template sampled: 1 agree\n")


def test_the_advice_names_the_file_from_the_configurations_folder(run, tmp_path, monkeypatch):
    (tmp_path / "prefixctl.yaml").write_text("lint: {}\n")
    monkeypatch.chdir(tmp_path / "t")
    for given in (".", str(tmp_path / "t"), "../t/a.jinja"):
        code, out, _ = run(given, "--sample")
        assert code == 1
        assert "lint: {paths: [{match: t/a.jinja, variables: {here: request}}]}" in out


def test_what_lint_missed_is_an_error_with_both_values(run):
    code, out, _ = run("t", "--sample", "--values", "v.yaml")
    assert code == 1
    assert "missed: the renders part at character 30 by `here`; lint expects that at" in out
    assert "render 1: 'one and " in out
    assert "render 2: 'two and " in out
    assert "variables: {here: request}" in out
    assert run("t", "--sample", "--values", "v.yaml", "--fail-on", "never")[0] == 0


def test_the_advice_that_it_gives_is_right(run, tmp_path: Path):
    (tmp_path / "prefixctl.yaml").write_text(
        "lint: {paths: [{match: t/a.jinja, variables: {here: request}}]}\n"
    )
    code, out, _ = run("t", "--sample", "--values", "v.yaml")
    assert (code, "by `here`, as lint says" in out) == (0, True)


def test_what_lint_claims_wrongly(run, tmp_path: Path):
    (tmp_path / "v.yaml").write_text("- {user_name: Kim, here: a}\n- {user_name: Kim, here: a}\n")
    code, out, _ = run("t", "--sample", "--values", "v.yaml")
    assert code == 0
    assert "claimed wrongly: lint expects a change at character" in out
    assert "but the renders are equal" in out
    assert run("t", "--sample", "--values", "v.yaml", "--fail-on", "warning")[0] == 1


def test_json(run):
    value = json.loads(run("t", "--sample", "--values", "v.yaml", "--format", "json")[1])
    (sample,) = value["samples"]
    assert sample["agreement"] == "missed"
    assert sample["variables"] == ["here"]
    assert sample["first_difference_chars"] == 30
    assert value["summary"]["missed"] == 1


def test_includes_front_matter_strings_and_what_is_not_rendered(run, tmp_path: Path):
    (tmp_path / "t" / "a.jinja").write_text("Ask: {% include 'part.jinja' %}")
    (tmp_path / "t" / "part.jinja").write_text("<{{ question }}>")
    (tmp_path / "t" / "p.prompty").write_text("---\nname: x\n---\nsystem:\nHi {{ user_name }}\n")
    (tmp_path / "t" / "chat.jinja").write_text(
        "{% for message in messages %}{{ message['role'] }}{{ message['content'] }}{% endfor %}"
    )
    (tmp_path / "t" / "f.txt").write_text("Say {this} and {that} to the person who asked you it.")
    code, out, _ = run("t/a.jinja", "t/p.prompty", "t/chat.jinja", "t/f.txt", "--sample")
    assert code == 0
    assert "a.jinja:1:1: agrees: the renders part at character 6 by `question`" in out
    assert "p.prompty:4:1: agrees: the renders part at character" in out
    assert "chat.jinja: skipped: a chat template: `prefixctl template` renders it" in out
    assert "f.txt: skipped: no Jinja2 template" in out
    assert "2 templates sampled: 2 agree; 2 skipped" in out


def test_a_hostile_template_ends(run, tmp_path: Path):
    (tmp_path / "t" / "a.jinja").write_text(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{{ now }}"
    )
    code, out, _ = run("t", "--sample")
    assert code == 3
    assert "not rendered: it does not end within" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["t", "--values", "v.yaml"], 2, "--values goes with --sample"),
        (["t", "--sample", "--fix"], 2, "exclude each other"),
        (["t", "--sample", "--format", "sarif"], 2, "text or json"),
        (["t", "--sample", "--values", "none.yaml"], 3, "no such file"),
        (["t", "--sample", "--values", "one.yaml"], 3, "1 sets of values"),
        (["t", "--sample", "--values", "map.yaml"], 3, "no list of mappings"),
        (["empty.txt", "--sample"], 3, "no Jinja2 template to render"),
        (["broken.jinja", "--sample"], 3, ""),
    ],
)
def test_bad_input_is_named(run, tmp_path: Path, words, code, message):
    (tmp_path / "one.yaml").write_text("- {a: 1}\n")
    (tmp_path / "map.yaml").write_text("a: 1\n")
    (tmp_path / "empty.txt").write_text("Just words without any placeholder in them.")
    (tmp_path / "broken.jinja").write_text("{% if %}")
    found, _, said = run(*words)
    assert found == code
    assert message in said
