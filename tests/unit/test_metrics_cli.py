"""`prefixctl rules`: what it prints, and its exit codes."""

import json
import os
import subprocess
import sys

import pytest

FACE = """
from prefixctl.cli import COMMAND_MODULES, main, rules
if rules not in COMMAND_MODULES:
    rules.register(main.app)
main.run()
"""


@pytest.fixture
def run(tmp_path):
    def call(*words, path=None):
        environment = {**os.environ, "NO_COLOR": "1"}
        environment.pop("PREFIXCTL_CONFIG", None)
        if path is not None:
            environment["PATH"] = str(path)
        return subprocess.run(
            [sys.executable, "-c", FACE, "rules", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def test_generate_then_check(run, tmp_path):
    done = run("generate")
    assert (done.returncode, done.stderr) == (0, "")
    assert "rules/day1.rules.yaml: written" in done.stdout
    assert run("generate", "--check").returncode == 0
    (tmp_path / "rules" / "day1.rules.yaml").unlink()
    drifted = run("generate", "--check")
    assert drifted.returncode == 5
    assert "missing" in drifted.stderr


def test_generate_as_json(run):
    done = run("generate", "--out", "made", "--format", "json")
    value = json.loads(done.stdout)
    assert value["schema"] == 1
    assert [file["path"] for file in value["files"]] == [
        "made/day1.rules.yaml",
        "made/day1.tests.yaml",
    ]
    assert "PrefixCacheHitsFrozen" in value["alerts"]


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["generate", "--profile", "day3"], 2, "did you mean day1?"),
        (["generate", "--set", "ttft=1"], 2, "ttft_p99_seconds"),
        (["generate", "--selector", "job"], 3, 'job="vllm"'),
        (["test", "nowhere"], 3, "rules generate"),
    ],
)
def test_errors_have_a_code_and_a_way_out(run, words, code, hint):
    done = run(*words)
    assert done.returncode == code
    assert done.stdout == ""
    assert hint in done.stderr


def test_without_promtool_nothing_passes(run, tmp_path):
    run("generate")
    (tmp_path / "empty").mkdir()
    done = run("test", path=tmp_path / "empty")
    assert done.returncode == 4
    assert "apt-get install prometheus" in done.stderr


def test_failed_rule_tests_exit_1(run, tmp_path):
    run("generate")
    fake = tmp_path / "bin" / "promtool"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "got $1"\n[ "$1" = check ]\n')
    fake.chmod(0o755)
    done = run("test", "--format", "json", path=fake.parent)
    assert done.returncode == 1
    check, test = json.loads(done.stdout)["checks"]
    assert (check["passed"], test["passed"]) == (True, False)
    assert test["output"] == "got test"
