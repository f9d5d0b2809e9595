"""`init --write` on repositories of many shapes: the next lint and bump accept it without edits."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import prefixctl.cli.main

PROSE = "You are a careful planner of long journeys. Answer in short sentences and never guess.\n"
CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{{ eos_token }}"
PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 8
CORPUS = Path(__file__).parents[3] / "shared" / "corpus"

LAYOUTS: Mapping[str, Mapping[str, str | bytes]] = {
    "strings in python": {
        "app/prompts.py": f'SYSTEM_PROMPT = """\n{PROSE * 3}"""\n'
        f'USER_PROMPT_TEMPLATE: str = """{PROSE}Plan for {{question}} as {{{{"a": 1}}}}.\n"""\n'
        f'STATUS_PROMPT = f"""{PROSE}{{now()}}"""\n'
        f"class Agent:\n    instructions = {PROSE * 2!r}\n",
        "app/main.py": "print('hello')\n",
        "tests/test_prompts.py": f"SYSTEM_PROMPT = {PROSE * 4!r}\n",
    },
    "python in latin-1 and broken python": {
        "a/prompts.py": f"# coding: latin-1\nSYSTEM_PROMPT = '''{PROSE * 2}'''\n".encode("latin-1"),
        "a/broken_prompts.py": "SYSTEM_PROMPT = '''never closed",
    },
    "typescript beside markdown": {
        "src/agent.ts": f"export const SYSTEM_PROMPT: string = `{PROSE}Say \\`{{word}}\\`.\n`;\n"
        f"const userPrompt = `{PROSE}${{name}}`;\nconst other = `{PROSE}`;\n",
        "src/__tests__/a.test.ts": f"const SYSTEM_PROMPT = `{PROSE}`;\n",
        "src/prompts/agent.md": PROSE * 3,
        "src/prompts/router.md": PROSE + "Route {{ message }} to {{ teams }}.\n",
        "package.json": '{"name": "x"}',
    },
    "a yaml tree": {
        "conf/agents/planner.yaml": f"name: planner\nsystem_prompt: |\n  {PROSE}  {PROSE}",
        "conf/agents/deep/coder.yml": f"agent:\n  steps:\n    - instruction: >\n        {PROSE}",
        "conf/agents/list.yaml": json.dumps(
            [{"role": "system", "content": PROSE}, {"role": "user", "content": "{question}"}]
        ),
        "conf/empty.yaml": "",
        "conf/aliases.yaml": "a: &a [1]\nb: *a\n",
    },
    "a monorepo": {
        **{f"services/{n}/prompts/system.md": PROSE + f"Service {n}.\n" for n in "abc"},
        **{f"services/{n}/prompts/user.md": "Now answer what the person asks you: {question}\n"
           for n in "abc"},
        "services/a/node_modules/x/prompts/system.md": PROSE,
        "libs/shared/templates/header.jinja": PROSE + "For {{ tenant_name }}.\n",
        "libs/shared/templates/page.html.j2": "<html>{{ title }}</html>",
        ".git/prompts/system.md": PROSE,
    },
    "a model beside a prompt": {
        "model/tokenizer_config.json": json.dumps({"chat_template": CHAT, "bos_token": "<s>"}),
        "model/config.json": "{}",
        "model/chat_template.jinja": CHAT,
        "model/weights.safetensors": PICTURE,
        "prompts/bot/system.md": PROSE,
    },
    "findings from the first day on": {
        "prompts/clock.jinja": "It is {{ now }}.\n" + PROSE * 8,
        "prompts/user.jinja": "Hello {{ user_name }}.\n" + PROSE * 8,
        "prompts/crlf.txt": (PROSE * 4).replace("\n", "\r\n") + "\n\n",
    },
    "names that yaml and files misread": {
        "prompts/yes.md": PROSE,
        "prompts/1.md": PROSE,
        "prompts/a b & c.md": PROSE,
        "prompts/中文 提示.md": "你是一名客服助手，请用简短的中文回答用户的问题。\n" * 3,
        "prompts/über.jinja": PROSE + "{{ größe }}\n",
        "prompts/null/off.md": PROSE,
    },
    "chinese in gbk": {
        "prompts/kefu.md": ("你是一名客服助手，请用简短的中文回答用户的问题。\n" * 4).encode("gbk"),
        "prompts/kefu.j2": ("你是一名客服助手，请回答用户 {{ name }} 的问题。\n" * 4).encode("gbk"),
        "prompts/ok.md": PROSE,
    },
    "a half governed repository": {
        "prompts/old/prompt.yaml": "sections:\n  - {kind: system_prompt, file: s.md}\n"
        "  - {kind: user, file: u.md.j2}\nparameters:\n  q: {scope: request}\n",
        "prompts/old/s.md": PROSE,
        "prompts/old/u.md.j2": "{{ q }}",
        "prompts/new/system.md": PROSE,
    },
    "includes and macros": {
        "prompts/main/main.jinja": PROSE + "{% include 'part.jinja' %}{{ question }}\n",
        "prompts/main/part.jinja": "Be fair to all the people who ask you something. {{ tone }}\n",
        "prompts/loop/loop.jinja": PROSE + "{% for d in documents %}{{ d.text }}{% endfor %}\n",
        "prompts/bad/bad.jinja": PROSE + "{% if %}\n",
    },
    "links and odd files": {
        "prompts/a.md": PROSE,
        "prompts/blob.md": PICTURE,
        "prompts/empty.md": "",
        "prompts/one.jinja": "",
    },
}  # fmt: skip

NOTHING: Mapping[str, tuple[Mapping[str, str | bytes], str]] = {
    "empty": ({}, "no prompt was found that could be governed"),
    "binary": ({"a.png": PICTURE, "b/c.bin": PICTURE, "prompts/d.md": PICTURE}, "prompts are"),
    "a model": (
        {"tokenizer_config.json": json.dumps({"chat_template": CHAT}), "config.json": "{}"},
        "tokenizer_config.json#chat_template: a model's chat template",
    ),
    "a template of a model": ({"chat_template.jinja": CHAT}, "`prefixctl template` shows"),
    "code": ({"main.py": "x = 1\n", "README.md": PROSE * 9}, "prompts are Jinja"),
}  # fmt: skip


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["prefixctl", *words])
        with pytest.raises(SystemExit) as ended:
            prefixctl.cli.main.run()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


def write(root: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def tree(root: Path) -> dict[str, bytes]:
    found = (p for p in root.rglob("*") if p.is_file() and ".prefixctl" not in p.parts)
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in found}


def adopt(run) -> int:
    """Adopt the current folder, and check that lint and bump accept it; the number of prompts."""
    before = tree(Path())
    dry = run("init")
    assert tree(Path()) == before
    done = run("init", "--write")
    assert done[0] == dry[0]
    assert done[0] == 0, done
    after = tree(Path())
    assert {p: after[p] for p in before} == before, "a file that was there changed"
    for words in (
        ["lint"],
        ["bump", "--reason", "first version", "--author", "a"],
        ["bump", "--check"],
        ["lint", "--fail-on", "info"],
    ):
        found = run(*words)
        assert found[0] == 0, (words, found)
    again = run("init", "--write")
    assert "nothing to do" in again[1]
    return sum(p.endswith("prompt.yaml") for p in after)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_invented_repository(run, tmp_path: Path, monkeypatch, layout: str):
    write(tmp_path, LAYOUTS[layout])
    monkeypatch.chdir(tmp_path)
    assert adopt(run) >= 1


def test_what_is_found_in_python(run, tmp_path: Path, monkeypatch):
    write(tmp_path, LAYOUTS["strings in python"])
    monkeypatch.chdir(tmp_path)
    out = run("init", "--write")[1]
    assert "left out app/prompts.py#STATUS_PROMPT: an f-string" in out
    names = {p.parent.name for p in tmp_path.rglob("prompt.yaml")}
    assert names == {"prompts-system_prompt", "prompts-user_prompt_template",
                     "prompts-agent-instructions"}  # fmt: skip
    user = tmp_path / "governed" / "prompts-user_prompt_template" / "user.md.j2"
    assert "{{ question }} as {{ '{' }}\"a\": 1{{ '}' }}." in user.read_text()


def test_what_is_found_in_typescript(run, tmp_path: Path, monkeypatch):
    write(tmp_path, LAYOUTS["typescript beside markdown"])
    monkeypatch.chdir(tmp_path)
    out = run("init", "--write")[1]
    assert "left out src/agent.ts#userPrompt: a literal with values" in out
    names = {p.parent.name for p in tmp_path.rglob("prompt.yaml")}
    assert names == {"agent-system_prompt", "agent", "router"}
    (text,) = (p.read_text() for p in tmp_path.rglob("agent-system_prompt/system.md.j2"))
    assert text == PROSE + "Say `{{ word }}`.\n"


@pytest.mark.parametrize("layout", NOTHING)
def test_nothing_to_adopt_is_no_success(run, tmp_path: Path, monkeypatch, layout: str):
    files, words = NOTHING[layout]
    write(tmp_path, files)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    code, _, said = run("init", "--write")
    assert code == 3
    assert words in said
    assert tree(tmp_path) == before


def test_a_folder_that_links_to_itself(run, tmp_path: Path, monkeypatch):
    write(tmp_path, LAYOUTS["links and odd files"])
    (tmp_path / "prompts" / "again").symlink_to(tmp_path)
    (tmp_path / "prompts" / "nowhere.md").symlink_to(tmp_path / "gone.md")
    monkeypatch.chdir(tmp_path)
    assert adopt(run) == 1


@pytest.mark.slow
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no public repositories here")
def test_public_repositories(run, tmp_path: Path, monkeypatch):
    accepted = 0
    for folder in sorted(p for p in CORPUS.iterdir() if p.is_dir()):
        copy = tmp_path / folder.name
        shutil.copytree(folder, copy)
        monkeypatch.chdir(copy)
        if run("init")[0] == 3:
            continue
        assert adopt(run) >= 1, folder.name
        accepted += 1
    os.chdir(tmp_path)
    assert accepted >= 5
