"""What is no regular file, or has no end: refused at once, and said, in every way to lint."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from linting import run_prefixctl, static

from prefixctl.lint.run import MAX_FILE_BYTES

GOOD = "Hello {{ user_name }}.\n" + static(60)
CRLF = "a\r\nb\r\nc\n" + static(60).replace("\n", "\r\n")
WAYS = [(), ("--fix",), ("--sample",), ("--baseline", "base.json"), ("--diff",)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.json").write_text('{"schema": 1, "findings": []}')
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "good.j2").write_text(GOOD)
    return lambda *words: run_prefixctl(monkeypatch, capsys, "lint", *words)


def make(kind: str, path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path.name)


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w[0] if w else "lint")
@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
def test_in_a_walk(run, kind, way):
    make(kind, Path("t") / "odd.j2")
    code, out, err = run("t", *way)
    assert code == 3
    assert "odd.j2" in out + err
    assert "good.j2" in out + err
    if way != ("--diff",):
        assert ("not a regular file" if kind != "loop" else "levels of symbolic links") in out


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w[0] if w else "lint")
@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
def test_named(run, kind, way):
    make(kind, Path("t") / "odd.j2")
    code, out, err = run("t/odd.j2", *way)
    assert code == 3
    assert "odd.j2" in out + err


@pytest.mark.parametrize("name", ["odd.j2", "/dev/zero"])
def test_included(run, name):
    make("loop", Path("t") / "odd.j2")
    (Path("t") / "a.j2").write_text("{% include '" + name + "' %}\n" + GOOD)
    assert run("t/a.j2")[0] in {0, 1, 3}


def test_a_prompt_file_that_is_a_pipe(run):
    make("pipe", Path("t") / "prompt.yaml")
    code, out, _ = run("t")
    assert (code, "prompt.yaml" in out) == (3, True)


@pytest.mark.parametrize("path", ["/dev/full", "pipe", "loop"])
def test_a_baseline_is_never_written_over_what_is_no_file(run, path):
    if not path.startswith("/"):
        make(path, Path(path))
    mode = os.lstat(path).st_mode
    code, _, err = run("t", "--write-baseline", path)
    assert (code, "Traceback" in err) == (3, False)
    assert os.lstat(path).st_mode == mode


@pytest.mark.parametrize("text", ["[" * 3000, '{"findings":' * 3000, "\0", "[1" + "0" * 5000 + "]"])
def test_a_baseline_made_to_crash(run, text):
    Path("base.json").write_text(text)
    code, _, err = run("t", "--baseline", "base.json")
    assert (code, "is no baseline of lint" in err) == (3, True)
    assert run("t", "--write-baseline", "base.json")[0] == 3
    assert run("t", "--baseline", "/dev/zero")[0] == 3


class _Endless(io.RawIOBase):
    """A fake standard input without an end, which counts what is taken from it."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        self.taken += len(buffer)
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


def test_standard_input_without_an_end(run, monkeypatch):
    source = _Endless()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(source)))
    code, out, _ = run("--stdin", "--stdin-filename", "p.j2")
    assert (code, "larger than" in out) == (3, True)
    assert source.taken < MAX_FILE_BYTES + 2 * 2**20


def test_a_closed_standard_input(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = run("--stdin", "--stdin-filename", "p.j2")
    assert (code, "standard input is closed" in err) == (3, True)


def test_what_was_fixed_before_a_file_that_cannot_be_written_is_told(run, monkeypatch):
    from prefixctl.lint import baseline

    for name in ("a.j2", "b.j2"):
        (Path("t") / name).write_bytes(CRLF.encode())
    real = baseline.replace_file

    def full(path: Path, data: bytes) -> None:
        if path.name == "b.j2":
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(baseline, "replace_file", full)
    code, _, err = run("t", "--fix")
    assert code == 3
    assert err.index("a.j2: fixed PFX304") < err.index("b.j2: cannot be written: No space left")
    assert "b.j2: fixed" not in err


def test_samples_of_which_none_was_rendered_are_no_result(run):
    (Path("t") / "good.j2").write_text("{{ none_such.a.b.c() }}{{ 1 / 0 }}")
    code, out, _ = run("t", "--sample", "--format", "json")
    assert json.loads(out)["summary"]["failed"] == 1
    assert code == 3
    (Path("t") / "fine.j2").write_text(static(30))
    assert run("t", "--sample", "--fail-on", "error")[0] == 0


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ("variable: ['%%', '%%']", "'%%' both opens and closes a variable"),
        ("variable: ['[[', ']]'], block: ['[[', '%]']", "'[[' opens a variable and a block"),
        ("comment: ['{%', '%}']", "'{%' opens a block and a comment"),
    ],
)
def test_delimiters_that_cannot_be_told_apart(run, marks, words):
    text = f"lint:\n  paths:\n  - match: x\n    delimiters: {{{marks}}}\n"
    Path("prefixctl.yaml").write_text(text)
    code, _, err = run("t")
    assert code == 3
    assert words in err


def test_an_interrupt_while_the_program_loads():
    code = (
        "import builtins, os, signal\n"
        "import prefixctl.__main__ as program\n"
        "real = builtins.__import__\n"
        "def slow(name, *rest):\n"
        "    if name == 'prefixctl.cli.main':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = slow\n"
        "program.run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "error: interrupted\n"


def test_a_bug_shows_no_value_in_json(run, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise ValueError("planted-secret")

    monkeypatch.setattr("prefixctl.api.lint.lint_paths", broken)
    code, out, _ = run("t", "--format", "json")
    assert code == 70
    assert json.loads(out)["error"]["message"] == "a bug in prefixctl: ValueError"
