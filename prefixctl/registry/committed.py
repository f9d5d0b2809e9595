"""The text of a version that the lock names: from the registry, the work tree or git's history.

The lock holds digests only. In a pull request the work tree has the edited text and no registry is
near, so git's history is asked for the commit whose files fit the entry's digest.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from prefixctl.config import Config
from prefixctl.core.prompt import Prompt
from prefixctl.core.versions import Lock, content_of
from prefixctl.errors import PrefixctlError
from prefixctl.ids import PromptName
from prefixctl.prompts.load import load_prompt
from prefixctl.registry.sides import resolve

MAX_COMMITS = 200
_GIT_SECONDS = 60


def committed_prompt(
    config: Config, lock: Lock, name: PromptName, folder: Path | None
) -> Prompt | None:
    """The newest version of a prompt with the bytes of its files, or None if they are nowhere.

    Args:
        config: The configuration.
        lock: The lock.
        name: The prompt.
        folder: Where the prompt lies in the work tree, if it does: what git is asked for.
    """
    entry = lock.newest(name)
    if entry is None:
        return None
    try:
        side = resolve(config, lock, name, str(entry.version))
    except PrefixctlError:
        side = None  # a registry that cannot be read is as good as none: git may know
    if side is not None and side.prompt is not None:
        return side.prompt
    for archive in _history(folder) if folder is not None else ():
        prompt = _unpacked(archive, label=f"{name}@{entry.version}")
        if prompt is not None and content_of(prompt).digest == entry.content.digest:
            return replace(prompt, name=name)
    return None


def _history(folder: Path) -> Iterator[bytes]:
    """A folder as a tar archive in each commit that changed it, newest first."""
    git = shutil.which("git")
    if git is None or not folder.is_dir():
        return
    log = _git(git, folder, "log", "--format=%H", f"--max-count={MAX_COMMITS}", "HEAD", "--", ".")
    for commit in (log or b"").decode("ascii", "replace").split():
        if archive := _git(git, folder, "archive", "--format=tar", commit, "--", "."):
            yield archive


def _unpacked(archive: bytes, *, label: str) -> Prompt | None:
    """The prompt in an archive of its folder, or None if it could not be used then."""
    with tempfile.TemporaryDirectory(prefix="prefixctl-") as place:
        folder = Path(place) / "prompt"
        folder.mkdir()
        try:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(folder, filter="data")
            return replace(load_prompt(folder), origin=label)
        except (PrefixctlError, tarfile.TarError, OSError):
            return None


def _git(git: str, folder: Path, *words: str) -> bytes | None:
    """What a git command prints in a folder; None if it fails: no repository, no such commit."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, and the path that PATH gives
            [git, *words],
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
