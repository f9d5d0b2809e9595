"""The examples do what their recorded output says; `python tests/docs/test_examples.py` records."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MARKS = {
    "04_rules": pytest.mark.promtool,
    "05_serve_warm_audit": pytest.mark.vllm,
}
SCRIPTS = [
    pytest.param(p, marks=MARKS.get(p.stem, pytest.mark.slow), id=p.stem)
    for p in sorted(EXAMPLES.glob("0*.sh"))
]
VARIES = [
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:PORT"),
    (re.compile(r"--server \S+|\d+\.\d s"), "..."),
    (re.compile(r"'probe-[ab]'"), "'probe-X'"),
    (re.compile(r"(was served) [\d,]+ of [\d,]+ tokens"), r"\1 N of M tokens"),
    (re.compile(r"sha256:[0-9a-f]{8}"), "sha256:DIGEST"),
    (re.compile(r" +$", re.MULTILINE), ""),
]
COLUMNS = (re.compile(r" {2,}"), "  ")
"""Tables grow with what varies in them; lint's carets must stay where they are."""


def output(script: Path) -> str:
    """What a script prints, with all that varies between runs made equal."""
    binaries = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["sh", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    text = done.stdout
    for pattern, word in [*VARIES, *([COLUMNS] if "http://127.0.0.1:" in text else [])]:
        text = pattern.sub(word, text)
    return text


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_prints_what_its_record_says(script: Path) -> None:
    assert output(script) == script.with_suffix(".out").read_text(encoding="utf-8")


if __name__ == "__main__":
    for path in sorted(EXAMPLES.glob("0*.sh")):
        path.with_suffix(".out").write_text(output(path), encoding="utf-8")
