"""Lint for editors: what comes on standard input, and again whenever a file changes."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from linting import run_prefixctl, static

from prefixctl.api.lint import watch_paths
from prefixctl.config import Config
from prefixctl.lint.find import find_files
from prefixctl.lint.watch import Watch

BAD = "{{ now }}\n" + static(60)


@pytest.fixture
def run(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(text: str | bytes, *words: str):
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return run_prefixctl(monkeypatch, capsys, "lint", *words)

    return call


class TestStdin:
    def test_the_name_says_how_it_is_read(self, run):
        code, out, _ = run(BAD, "--stdin", "--stdin-filename", "new/p.jinja")
        assert code == 1
        assert out.startswith("new/p.jinja:1:1: error PFX101")
        assert run("{% if %}", "--stdin", "--stdin-filename", "p.jinja")[0] == 3
        code, out, _ = run(BAD.encode("utf-16"), "--stdin", "--stdin-filename", "p.j2")
        assert (code, "PFX101" in out) == (1, True)
        assert run("a = 1", "--stdin", "--stdin-filename", "a.py")[0] == 3
        assert not Path("new").exists()

    def test_what_the_editor_holds_goes_before_the_disk(self, run, tmp_path: Path):
        (tmp_path / "p.jinja").write_text(static(60))
        args = ("--stdin", "--stdin-filename", "p.jinja", "--format", "json")
        assert json.loads(run(BAD, *args)[1])["files"][0]["verdict"] == "break"
        assert (tmp_path / "p.jinja").read_text() == static(60)

    def test_a_section_is_linted_as_part_of_its_prompt(self, run, tmp_path: Path):
        folder = tmp_path / "t" / "p"
        folder.mkdir(parents=True)
        (folder / "prompt.yaml").write_text(
            "sections:\n- {kind: system_prompt, file: s.md.j2}\n"
            "- {kind: user, file: u.md.j2}\nparameters:\n  who: {scope: user}\n"
            "  ask: {scope: request}\n"
        )
        (folder / "s.md.j2").write_text(static(60))
        (folder / "u.md.j2").write_text("{{ ask }}")
        args = ("--stdin", "--stdin-filename", "t/p/s.md.j2")
        assert run(static(60), *args)[0] == 0
        code, out, _ = run("Hello {{ who }}.\n" + static(60), *args)
        assert (code, "t/p/s.md.j2:1:7: error PFX103" in out) == (1, True)
        code, out, _ = run("{{ nobody }}", *args)
        assert (code, "undefined parameter 'nobody'" in out) == (3, True)

    @pytest.mark.parametrize(
        "words",
        [
            ["--stdin"],
            ["--stdin-filename", "a"],
            ["p", "--stdin", "--stdin-filename", "a"],
            ["--stdin", "--stdin-filename", "a", "--fix"],
            ["--stdin", "--watch"],
        ],
    )
    def test_words_that_do_not_fit(self, run, words):
        assert run("", *words)[0] == 2


class TestWatch:
    def test_new_changed_and_lost_files_are_seen(self, tmp_path: Path):
        (tmp_path / "a.jinja").write_text("x")
        (tmp_path / "x.log").write_text("x")
        steps = iter(
            [
                lambda: (tmp_path / "x.log").write_text("not a prompt"),
                lambda: (tmp_path / "b.jinja").write_text("y"),
                lambda: (tmp_path / "a.jinja").write_text("longer"),
                (tmp_path / "b.jinja").unlink,
                (tmp_path / "a.jinja").unlink,
                lambda: (tmp_path / "prefixctl.yaml").write_text("{}"),
            ]
        )
        watch = Watch(
            lambda: find_files([tmp_path]),
            [tmp_path / "prefixctl.yaml"],
            sleep=lambda _: next(steps)(),
        )
        names = [[p.name for p in watch.wait()] for _ in range(5)]
        assert names == [["b.jinja"], ["a.jinja"], ["b.jinja"], ["a.jinja"], ["prefixctl.yaml"]]

    def test_all_files_of_a_governed_prompt_are_watched(self, tmp_path: Path):
        (tmp_path / "prompt.yaml").write_text("sections: []\n")
        watch = watch_paths(lambda: Config().at(tmp_path), [tmp_path])
        (tmp_path / "part.md").write_text("x")
        assert [p.name for p in watch.wait()] == ["part.md"]

    def test_the_command_lints_again_and_ends_with_130(self, tmp_path: Path):
        (tmp_path / "p.jinja").write_text(static(60))
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "prefixctl", "lint", ".", "--watch", "--format", "json"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert _verdict(process) == "ok"
            (tmp_path / "p.jinja").write_text(BAD)
            assert _verdict(process) == "break"
            (tmp_path / "prefixctl.yaml").write_text("targts: {}\n")
            time.sleep(1)
            (tmp_path / "prefixctl.yaml").unlink()
            assert _verdict(process) == "break"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
        assert process.returncode == 130
        assert b"unknown key 'targts'" in said
        assert b"changed: p.jinja" in said
        assert b"Traceback" not in said


def _verdict(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 20)
    assert ready
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(process.stdout.fileno(), 1)
    return json.loads(line)["files"][0]["verdict"]
