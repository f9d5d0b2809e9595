"""prefixes.lock.yaml: the versions of all governed prompts, made for review and for git merges.

Every prompt's list grows at its end and is closed by a comment line, so that branches which bump
different prompts touch different places and merge cleanly. Branches that bump the same prompt
touch the same place: git reports a conflict, and a merge that joins them all the same breaks the
chain of ids, which the loader finds.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from prefixctl.core.versions import Lock, PrefixVersion, lineage_fault
from prefixctl.errors import LockError
from prefixctl.ids import PromptName
from prefixctl.sources.files import replace_file
from prefixctl.sources.lockentry import Entry, entry_value
from prefixctl.yamlfile import StrictModel, is_there, line_of, load_model, read_bytes

SCHEMA = 1
HEADER = """\
# Versions of the governed prompts, oldest first. Written by `prefixctl bump`: commit this file and
# do not edit it. Entries are only ever added; each names its parent by id. If a merge conflicts
# here, keep one side's entries of that prompt and run `prefixctl bump` again.
"""
LOCK_WAIT_SECONDS = 30.0
_MARKER = re.compile(r"(?:<{7}|={7}|>{7}|\|{7})(?: |$)")
_PROMPT_LINE = re.compile(r"  (\S.*):$")


class LockModel(StrictModel):
    """The whole of prefixes.lock.yaml."""

    lock_schema: Literal[1] = Field(alias="schema", description="Version of the format.")
    prompts: dict[PromptName, tuple[Entry, ...]] = Field(
        default_factory=dict, description="Versions by prompt, oldest first."
    )


MAX_LOCK_BYTES = 64 * 1024 * 1024


def load_lock(path: Path) -> Lock:
    """Read the lock file; a missing one holds no versions.

    Raises:
        LockError: If it cannot be used, with the line: conflict markers, a broken chain, an edited
            entry, one version twice, a schema from the future.
    """
    if not is_there(path):
        return Lock(path=str(path), prompts={})
    return parse_lock(read_bytes(path, LockError, limit=MAX_LOCK_BYTES), str(path))


def parse_lock(data: bytes, path: str) -> Lock:
    """The lock in the bytes of its file. Errors as in `load_lock`."""
    text = data.decode("utf-8", errors="replace")
    _refuse_conflict(text, path)
    _refuse_future(text, path)
    model, node = load_model(LockModel, data, path, LockError, limit=MAX_LOCK_BYTES)
    prompts = {}
    for name, models in model.prompts.items():
        entries = tuple(m.to_version() for m in models)
        fault = lineage_fault(name, entries)
        if fault:
            lines = [line_of(node, ("prompts", name, i)) for i in fault.indices]
            places = " and ".join(str(line) for line in lines)
            more = f" (lines {places})" if len(lines) > 1 else ""
            raise LockError(fault.message + more, path=path, line=lines[0], hint=fault.hint)
        prompts[name] = entries
    return Lock(path=path, prompts=prompts)


def dump_lock(lock: Lock) -> bytes:
    """The bytes of the lock file: the same for the same lock, prompts by name."""
    parts = [HEADER, f"schema: {SCHEMA}\n"]
    parts.append("prompts:\n" if lock.prompts else "prompts: {}\n")
    parts += [_prompt_text(name, lock.prompts[name]) for name in sorted(lock.prompts)]
    return "".join(parts).encode()


def update_lock(path: Path, change: Callable[[Lock], Lock]) -> Lock:
    """Read the lock, change it, and write it back if it differs, with no other writer between.

    The file is replaced in one step, so that a reader, or a writer killed at any point, leaves
    the old file or the new one.

    Args:
        path: The lock file; its folder must exist.
        change: From the lock as it is now to the lock as it shall be.

    Raises:
        LockError: If the lock cannot be used, or the file cannot be written.
    """
    if path.is_symlink() and not path.exists():
        raise LockError("a link that leads nowhere", path=str(path))
    try:
        path = path.resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        raise LockError(f"no path to write to: {exc}", path=str(path)) from exc
    with _exclusive(path.parent) as folder:
        before = load_lock(path)
        after = change(before)
        if after.prompts == before.prompts:
            return before
        data = _checked(after, str(path))
        try:
            # A fixed name: only the holder of the folder's lock uses it.
            replace_file(path, data, temporary=path.with_name(f".{path.name}.tmp"))
            os.fsync(folder)
        except OSError as exc:
            raise LockError(f"cannot be written: {exc.strerror}", path=str(path)) from exc
        return after


def _checked(lock: Lock, path: str) -> bytes:
    """The bytes of a lock, once it is sure that they read back as the same lock."""
    cause: Exception | None = None
    try:
        data = dump_lock(lock)
        if parse_lock(data, path).prompts == lock.prompts:
            return data
    except (UnicodeEncodeError, LockError) as exc:
        cause = exc
    raise LockError(
        "a word in the new entry does not survive YAML, so nothing was written",
        path=path,
        hint="use plain text without control characters",
    ) from cause


@contextmanager
def _exclusive(folder: Path) -> Iterator[int]:
    """Hold the folder's advisory lock; the system frees it when the process ends."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise LockError(f"no folder to write into: {exc.strerror}", path=str(folder)) from exc
    try:
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while not _try_lock(fd):
            if time.monotonic() > deadline:
                raise LockError(
                    f"another process has been writing here for {LOCK_WAIT_SECONDS:.0f} s",
                    path=str(folder),
                    hint="wait for it, or end it",
                )
            time.sleep(0.02)
        yield fd
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prompt_text(name: PromptName, entries: tuple[PrefixVersion, ...]) -> str:
    value: Mapping[str, Any] = {"prompts": {name: [entry_value(e) for e in entries]}}
    text: str = yaml.safe_dump(
        value, sort_keys=False, allow_unicode=True, default_flow_style=None, width=1_000_000
    )
    return text.removeprefix("prompts:\n") + f"  # end of {name}\n"


def _refuse_conflict(text: str, path: str) -> None:
    prompts: list[str] = []
    name, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if found := _PROMPT_LINE.match(line):
            name = found[1]
        if _MARKER.match(line):
            first = first or number
            if name and name not in prompts:
                prompts.append(name)
    if first:
        where = f" at {', '.join(prompts)}" if prompts else ""
        raise LockError(
            f"git conflict markers from line {first} on{where}",
            path=path,
            line=first,
            hint="keep one side's entries of each prompt, remove the markers, and run "
            "`prefixctl bump` again for the other side's text",
        )


def _refuse_future(text: str, path: str) -> None:
    found = re.search(r"^schema: *(\d+)", text, re.MULTILINE)
    if found and int(found[1]) > SCHEMA:
        raise LockError(
            f"schema {found[1]} is newer than {SCHEMA}, the newest that this prefixctl reads",
            path=path,
            line=text.count("\n", 0, found.start()) + 1,
            hint="upgrade prefixctl",
        )
