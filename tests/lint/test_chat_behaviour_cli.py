"""`prefixctl template`: table, JSON, exit codes, templates inside JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from prefixctl.api.template import measure_file
from prefixctl.cli import template
from prefixctl.errors import InputError
from prefixctl.lint.chat.advice import COLUMNS

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
MOVING = (
    "{% for m in messages %}{% if loop.last %}{{ messages[0].content }}{% endif %}"
    "{% if not loop.first %}{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.fixture
def run(monkeypatch):
    app = typer.Typer()
    app.callback()(lambda: None)
    template.register(app)
    monkeypatch.setenv("NO_COLOR", "1")
    return lambda *words: CliRunner().invoke(app, ["template", *map(str, words)])


def write(folder: Path, content: object, name: str = "chat.jinja") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_table(run, tmp_path):
    done = run(write(tmp_path, PLAIN))
    assert done.exit_code == 0
    for name in COLUMNS:
        assert name in done.stdout
    assert "trim it in the client" in done.stdout


def test_moving_system_text_exits_1(run, tmp_path):
    done = run(write(tmp_path, MOVING))
    assert done.exit_code == 1
    assert "ahead of the first turn" in done.stdout


def test_json(run, tmp_path):
    done = run(write(tmp_path, MOVING), "--format", "json")
    assert done.exit_code == 1
    value = json.loads(done.stdout)
    assert value["schema"] == 1
    (made,) = value["templates"]
    assert set(COLUMNS) <= set(made)
    assert made["breaks"] is True
    assert made["multi_turn"] == "REWRITES"
    assert made["turns"][0]["kind"] == "REWRITES"


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ({"chat_template": PLAIN, "bos_token": "<s>"}, ["default"]),
        ({"chat_template": [{"name": "default", "template": PLAIN},
                            {"name": "tool_use", "template": PLAIN}]}, ["default", "tool_use"]),
        ({"chat_template": {"default": PLAIN, "rag": PLAIN}}, ["default", "rag"]),
        (json.dumps(PLAIN), ["default"]),
    ],
)  # fmt: skip
def test_templates_inside_json(tmp_path, content, names):
    path = write(tmp_path, content, "tokenizer_config.json")
    assert [r.name for r in measure_file(path)] == names


UNREADABLE = [
    ("chat.jinja", "{% for m in messages %}", "cannot be rendered"),
    ("chat.jinja", "You are kind.", "prints no user message"),
    ("chat.jinja", "{{ raise_exception('never') }}", "never"),
    ("chat.jinja", "{% include '../../etc/passwd' %}", "not among its files"),
    ("c.json", "{", "broken JSON"),
    ("c.json", "{}", "chat_template"),
    ("c.json", "[" * 100_000, "broken JSON"),
]


@pytest.mark.parametrize(("name", "content", "message"), UNREADABLE)
def test_unreadable_files(run, tmp_path, name, content, message):
    path = write(tmp_path, content, name)
    with pytest.raises(InputError, match=message) as raised:
        measure_file(path)
    assert raised.value.exit_code == 3
    assert raised.value.path == str(path)
    assert isinstance(run(path).exception, InputError)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        measure_file(tmp_path / "none.jinja")
    (tmp_path / "b.jinja").write_bytes(b"a\0b")
    with pytest.raises(InputError, match="binary"):
        measure_file(tmp_path / "b.jinja")
