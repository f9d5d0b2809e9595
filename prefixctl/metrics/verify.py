"""promtool on generated files: syntax, duplicates, unit tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixctl.errors import NothingToDoError, UnreachableError

TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PromtoolResult:
    """One call of promtool.

    Attributes:
        command: The words behind ``promtool``, with paths as they were given.
        passed: Whether it found nothing.
        output: What it printed, both streams.
    """

    command: tuple[str, ...]
    passed: bool
    output: str


def find_promtool() -> str:
    """The path of promtool.

    Raises:
        UnreachableError: If it is not installed: files that nothing has checked are no pass.
    """
    found = shutil.which("promtool")
    if found is None:
        raise UnreachableError(
            "promtool is not installed, so nothing was checked",
            hint="apt-get install prometheus",
        )
    return found


def verify_folder(folder: Path) -> tuple[PromtoolResult, ...]:
    """Check all rule files in a folder, and run all unit tests in it.

    Raises:
        NothingToDoError: If it holds no rule file or no unit tests.
        UnreachableError: If promtool is not installed or does not come to an end.
    """
    rules = _files(folder, "*.rules.yaml")
    tests = _files(folder, "*.tests.yaml")
    promtool = find_promtool()
    return (
        _run(promtool, "check", "rules", "--lint=all", "--lint-fatal", *rules),
        _run(promtool, "test", "rules", *tests),
    )


def _files(folder: Path, pattern: str) -> Sequence[str]:
    found = sorted(str(path) for path in folder.glob(pattern))
    if not found:
        raise NothingToDoError(
            f"no {pattern} here", path=str(folder), hint="prefixctl rules generate --profile day1"
        )
    return found


def _run(promtool: str, *words: str) -> PromtoolResult:
    try:
        done = subprocess.run(  # noqa: S603 - our own words and paths, no shell
            [promtool, *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise UnreachableError(f"promtool ran for more than {TIMEOUT_SECONDS} s") from exc
    output = (done.stdout + done.stderr).strip()
    return PromtoolResult(command=words, passed=done.returncode == 0, output=output)
