"""Runs an operation again and again, each time in a fork that kills itself one step later.

``killing.py sweep OPERATION SOURCE OUT`` copies the project SOURCE to OUT/1, OUT/2, ... and runs
the operation in each copy, killed with SIGKILL at step 1, 2, ... until it lives to the end. It
prints one JSON line per run. ``killing.py run OPERATION PROJECT`` runs it once, undisturbed.

A step is the moment before a low-level call that writes, which is the moment after the one before
it as well, or the middle of a write.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prefixctl.api import versions as api
from prefixctl.config import load_config
from prefixctl.registry.publish import Wanted

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MOST_STEPS = 400


def bump(project: Path) -> None:
    config = load_config(project / "prefixctl.yaml")
    api.bump_prompts(config, reason="second", author="Ann", now=NOW)


def publish(project: Path) -> None:
    api.publish_prompts(load_config(project / "prefixctl.yaml"), by="Ann", now=NOW)


def publish_first(project: Path) -> None:
    config = load_config(project / "prefixctl.yaml")
    api.publish_prompts(config, [Wanted(name="support", version=1)], by="Ann", now=NOW)


def rollback(project: Path) -> None:
    api.rollback_prompt(load_config(project / "prefixctl.yaml"), "support", by="Ann", now=NOW)


def gc(project: Path) -> None:
    api.remove_expired(load_config(project / "prefixctl.yaml"), now=NOW + timedelta(days=99))


OPERATIONS: dict[str, Callable[[Path], None]] = {
    "bump": bump,
    "publish": publish,
    "publish_first": publish_first,
    "rollback": rollback,
    "gc": gc,
}


class Countdown:
    """Kills the process when the given number of steps is reached."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return call(*args, **kwargs)

        return counted

    def halved(self, write: Callable[..., int]) -> Callable[..., int]:
        def counted(fd: int, data: Any) -> int:
            self.step()
            half = write(fd, bytes(data)[: len(data) // 2])
            self.step()
            return half + write(fd, bytes(data)[half:])

        return counted


def install(countdown: Countdown) -> None:
    """Count every call that writes to the lock file or to the registry."""
    os.write = countdown.halved(os.write)
    for module, name in (
        (os, "open"),
        (os, "fsync"),
        (os, "replace"),
        (os, "close"),
        (fcntl, "flock"),
    ):
        setattr(module, name, countdown.before(getattr(module, name)))

    class Counted(sqlite3.Connection):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            return countdown.before(super().execute)(*args)

    connect = sqlite3.connect
    sqlite3.connect = countdown.before(lambda *a, **k: connect(*a, **{**k, "factory": Counted}))


def killed_at(step: int, operation: Callable[[Path], None], project: Path) -> bool:
    """Whether the operation was killed at that step (it ends well if it has fewer steps)."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            install(Countdown(step))
            operation(project)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"the operation failed at step {step}")
    return False


def sweep(operation: str, source: Path, out: Path) -> None:
    for step in range(1, MOST_STEPS):
        project = out / str(step)
        shutil.copytree(source, project)
        killed = killed_at(step, OPERATIONS[operation], project)
        sys.stdout.write(json.dumps({"step": step, "killed": killed}) + "\n")
        if not killed:
            return
    raise SystemExit("too many steps")


if __name__ == "__main__":
    if sys.argv[1] == "sweep":
        sweep(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        OPERATIONS[sys.argv[2]](Path(sys.argv[3]))
