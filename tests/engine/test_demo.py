"""`prefixctl demo` on a real vLLM: its figures, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm
DEMO = [sys.executable, "-m", "prefixctl", "demo", "--format", "json"]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """An empty folder that the demo takes for the system's temporary one."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def start(scratch: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEMO, "--rules", str(scratch.parent / "rules")],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(scratch: Path) -> list[str]:
    """Command lines that name the scratch folder, this test's own aside."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(scratch) in line:
            found.append(line)
    return found


def test_the_demo_holds_and_cleans_up(scratch: Path) -> None:
    process = start(scratch)
    out, said = process.communicate(timeout=600)
    assert process.returncode == 0, out + said
    report = json.loads(out)
    assert report["failures"] == []
    assert len(report["prompts"]) == 5
    for prompt in report["prompts"]:
        assert prompt["cached_tokens"] == prompt["expected_hit_tokens"]
    assert report["isolation"] == {"with_salts": "isolated", "without_salts": "leak"}
    assert all(Path(p).is_file() for p in report["rules"])
    assert not list(scratch.glob("prefixctl-demo-*"))
    assert not processes_of(scratch)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(scratch: Path, signal_number: int) -> None:
    process = start(scratch)
    deadline = time.monotonic() + 120
    while not any("api_server" in line for line in processes_of(scratch)):
        assert time.monotonic() < deadline, "the server was not started"
        time.sleep(0.5)
    time.sleep(5)
    process.send_signal(signal_number)
    _, said = process.communicate(timeout=90)
    assert process.returncode == 130, said
    assert not list(scratch.glob("prefixctl-demo-*"))
    assert not processes_of(scratch)
