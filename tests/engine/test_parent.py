"""A server for one command alone does not outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CHILD = """\
import pathlib, time
from prefixctl.vllm_plugin.parent import end_with_parent
pathlib.Path({said!r}).write_text(str(end_with_parent()))
time.sleep(60)
"""
COMMAND = """\
import os, subprocess, sys
os.environ["PREFIXCTL_ENDS_WITH"] = str(os.getpid() + {other})
child = subprocess.Popen([sys.executable, "-c", {child!r}], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def started(tmp_path: Path, other: int) -> tuple[subprocess.Popen[str], int, str]:
    """A command, its server's process id, and whether the server ends with it."""
    said = tmp_path / "said"
    code = COMMAND.format(other=other, child=CHILD.format(said=str(said)))
    command = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(command.stdout.readline())
    deadline = time.monotonic() + 30
    while not (said.exists() and said.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return command, child, said.read_text()


def is_running(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_a_server_ends_when_its_command_is_killed(tmp_path):
    command, child, said = started(tmp_path, 0)
    assert said == "True"
    with command:
        command.kill()
    deadline = time.monotonic() + 10
    while is_running(child):
        assert time.monotonic() < deadline, "the server lives on"
        time.sleep(0.05)


def test_a_server_that_is_nobodys_goes_on(tmp_path):
    command, child, said = started(tmp_path, 1)
    assert said == "False"
    with command:
        command.kill()
    time.sleep(0.3)
    assert is_running(child)
    os.kill(child, signal.SIGKILL)
