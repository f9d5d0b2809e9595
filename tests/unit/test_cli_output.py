"""Errors as JSON for every command, and a standard output that is full, closed or narrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import run  # noqa: F401 - a fixture
from typer.main import get_command

import prefixctl.cli.main

COMMANDS = sorted(
    name
    for name, command in get_command(prefixctl.cli.main.app).commands.items()  # type: ignore[attr-defined]
    if any("--format" in p.opts for p in command.params)
)


def call(words: list[str], **streams: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "prefixctl", *words],
        stderr=subprocess.PIPE, text=True, check=False, **streams,
    )  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("words", [["--format", "json"], ["--format=json"]])
def test_every_command_says_a_usage_error_as_json(run, command, words) -> None:  # noqa: F811
    done = run(command, *words, "--no-such-option")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["exit_code"] == 2
    assert "--no-such-option" in error["message"]
    assert "--no-such-option" in done.stderr


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["lint", "nowhere"], "Input", 3),
        (["bump"], "Config", 3),
        (["bump", "--check"], "Config", 3),
        (["history", "x"], "Config", 3),
        (["rule", "PFX999"], "Usage", 2),
        (["nothing"], "Usage", 2),
    ],
)
def test_an_error_is_one_json_document(run, project: Path, words, kind, code) -> None:  # noqa: F811
    (project / "prefixctl.yaml").write_text("targts: {}\n")
    if words[0] == "lint":
        (project / "prefixctl.yaml").write_text("{}\n")
    done = run(*words, "--format", "json")
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["exit_code"], done.returncode) == (kind, code, code)
    assert error["message"] in done.stderr
    if kind == "Config":
        assert (error["path"], error["line"]) == ("prefixctl.yaml", 1)
        assert error["hint"] == "did you mean targets?"
    plain = run(*words)
    assert not plain.stdout


def test_what_stands_behind_two_dashes_is_no_option(run) -> None:  # noqa: F811
    assert not run("lint", "--", "nowhere", "--format", "json").stdout


def test_an_error_behind_a_result_adds_no_second_document(run, project: Path) -> None:  # noqa: F811
    (project / "a.jinja").write_text("Hello there, {{ user_name }}.")
    (project / "base.json").write_text("no baseline")
    done = run("lint", "a.jinja", "--write-baseline", "base.json", "--format", "json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["schema"] == 1
    assert "is no baseline" in done.stderr


def test_the_pages_of_rules_as_json(run) -> None:  # noqa: F811
    rules = json.loads(run("rule", "--format", "json").stdout)["rules"]
    (one,) = json.loads(run("rule", "clock-in-prefix", "--format", "json").stdout)["rules"]
    assert one in rules
    assert one["id"] == "PFX101"
    assert run("rule", "PFX101").stdout == one["page"]


@pytest.mark.parametrize("words", [["rule"], ["--help"], ["--version"], ["rule", "--format=json"]])
def test_a_full_standard_output(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = call(words, stdout=full)
    assert done.returncode == 4
    assert done.stderr.startswith("error: standard output cannot be written: No space left")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_pipe_that_nobody_reads() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = call(["rule", "--format", "json"], stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("words", ["rule", "rule --format json", "rule PFX101", "--help"])
def test_a_reader_that_has_enough_is_no_error(words: str) -> None:
    command = f"{{ {sys.executable} -m prefixctl {words}; echo $? >&2; }} | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr in {"141\n", "0\n"}


def test_a_standard_output_that_is_closed_from_the_start() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m prefixctl rule >&-"],
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert "standard output cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_standard_error_that_is_closed_leaves_stdout_clean(tmp_path: Path) -> None:
    for words in ("lint nowhere", "lint nowhere --format json", "lnit --format json"):
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m prefixctl {words} 2>&-"],
            stdout=subprocess.PIPE, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode in {2, 3}
        if "json" in words:
            assert json.loads(done.stdout)["error"]["exit_code"] == done.returncode
        else:
            assert not done.stdout


def test_an_encoding_without_the_character() -> None:
    done = call(
        ["rule", "PFX101", "--format", "json"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode in {0, 4}
    assert "Traceback" not in done.stderr
