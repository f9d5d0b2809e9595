"""Two versions of a prompt side by side: by section, by token and by block."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from prefixctl.config import Config
from prefixctl.core.blocks import common_prefix_tokens
from prefixctl.core.changes import TargetChange, changed_parts, compare_target
from prefixctl.core.prompt import Prompt
from prefixctl.core.versions import Content, TargetRecord, content_of
from prefixctl.errors import InputError, RegistryError
from prefixctl.ids import PromptName
from prefixctl.prompts.target import Target, load_target, measure
from prefixctl.registry.sides import Side, resolve
from prefixctl.registry.worktree import record_of
from prefixctl.sources.lockfile import load_lock

VISIBLE = str.maketrans({"\r": "␍", "\ufeff": "<BOM>"})
"""Bytes that make a difference and cannot be seen."""


class FileStatus(StrEnum):
    """What became of a file."""

    SAME = "same"
    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """A section's file, or an included one, on both sides.

    Attributes:
        file: The path in the prompt folder.
        kind: The section type, or ``included``.
        status: What became of it.
        lines: A unified diff; carriage returns and byte order marks are made visible.
    """

    file: str
    kind: str
    status: FileStatus
    lines: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDiff:
    """Both sides on one target.

    Attributes:
        target: Its name.
        change: What a switch costs; None if the prefix is the same.
        first_token: Index of the first shared token that differs; None if none does, or if the
            text of a side is not at hand.
        exact: Whether both sides were tokenised; if not, figures come from the lock, to the
            block.
    """

    target: str
    change: TargetChange | None
    first_token: int | None
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    """What differs between two versions of a prompt.

    Attributes:
        name: The prompt.
        old: What the first reference stands for.
        new: What the second one stands for.
        parts: Parts of the text that changed, in words; empty if the text is the same.
        files: By section; empty if the bytes of a side are not at hand.
        targets: By target.
        remarks: What could not be compared, and why.
    """

    name: PromptName
    old: str
    new: str
    parts: tuple[str, ...]
    files: tuple[FileDiff, ...]
    targets: tuple[TargetDiff, ...]
    remarks: tuple[str, ...]


def diff(config: Config, name: str, old: str | None = None, new: str | None = None) -> VersionDiff:
    """Compare two versions of a prompt.

    Args:
        config: The configuration.
        name: The prompt.
        old: A number, ``live`` or ``previous``; the lock's newest version if omitted.
        new: The same; the work tree if omitted.

    Raises:
        UsageError: If there is no such prompt, or a reference is no version.
        RegistryError: If a version is nowhere, or the prompt was never bumped.
    """
    lock = load_lock(config.lock_path)
    known = PromptName(name)
    b = resolve(config, lock, name, new)
    newest = lock.newest(known)
    if old is None and newest is None:
        raise RegistryError(
            f"'{name}' has no version yet", path=lock.path, hint=f"prefixctl bump {name}"
        )
    a = resolve(config, lock, name, old or str(newest.version if newest else 1))
    remarks = [
        f"the text of {side.label} is neither in the registry nor in the work tree; "
        "figures come from the lock"
        for side in (a, b)
        if side.prompt is None
    ]
    targets = [_target_diff(config, target, a, b, remarks) for target in config.targets]
    return VersionDiff(
        name=known,
        old=a.label,
        new=b.label,
        parts=changed_parts(_content(a), _content(b)),
        files=_file_diffs(a.prompt, b.prompt) if a.prompt and b.prompt else (),
        targets=tuple(t for t in targets if t is not None),
        remarks=tuple(remarks),
    )


def _content(side: Side) -> Content:
    if side.entry is not None:
        return side.entry.content
    if side.prompt is None:
        raise RegistryError(f"nothing is known of {side.label}")
    return content_of(side.prompt)


def _target_diff(
    config: Config, name: str, a: Side, b: Side, remarks: list[str]
) -> TargetDiff | None:
    target: Target | None = None
    try:
        target = load_target(config, name)
    except InputError as exc:
        remarks.append(f"target {name} cannot be loaded, figures come from the lock: {exc}")
    old, old_ids = _record(config, target, name, a)
    new, new_ids = _record(config, target, name, b)
    if new is None:
        return None
    first = None
    exact = old_ids is not None and new_ids is not None
    if old_ids is not None and new_ids is not None and old_ids != new_ids:
        first = common_prefix_tokens(old_ids, new_ids)
    return TargetDiff(
        target=name, change=compare_target(name, old, new), first_token=first, exact=exact
    )


def _record(
    config: Config, target: Target | None, name: str, side: Side
) -> tuple[TargetRecord | None, tuple[int, ...] | None]:
    """What the entry recorded, else what is measured; and the shared tokens if known."""
    recorded = side.entry.targets.get(name) if side.entry else None
    if target is None or side.prompt is None:
        return recorded, None
    measured = measure(side.prompt, target, config.prefix_cache)
    return recorded or record_of(target, measured), measured.token_ids


def _file_diffs(a: Prompt, b: Prompt) -> tuple[FileDiff, ...]:
    kinds = {**_kinds(a), **_kinds(b)}
    return tuple(
        FileDiff(
            file=file,
            kind=kind,
            status=_status(file, a.files, b.files),
            lines=_text_diff(a.files.get(file), b.files.get(file), a, b, file),
        )
        for file, kind in kinds.items()
    )


def _kinds(prompt: Prompt) -> dict[str, str]:
    kinds = {s.file: s.kind.value for s in prompt.sections}
    return kinds | dict.fromkeys(prompt.included, "included")


def _status(file: str, a: Mapping[str, bytes], b: Mapping[str, bytes]) -> FileStatus:
    if file not in a:
        return FileStatus.ADDED
    if file not in b:
        return FileStatus.REMOVED
    return FileStatus.SAME if a[file] == b[file] else FileStatus.CHANGED


def _text_diff(
    old: bytes | None, new: bytes | None, a: Prompt, b: Prompt, file: str
) -> tuple[str, ...]:
    lines = difflib.unified_diff(
        _lines(old), _lines(new), f"{a.origin}/{file}", f"{b.origin}/{file}", lineterm=""
    )
    return tuple(lines)


def _lines(data: bytes | None) -> list[str]:
    if not data:
        return []
    lines = data.decode("utf-8", errors="replace").translate(VISIBLE).split("\n")
    if lines[-1]:
        lines[-1] += "␃"
    else:
        lines.pop()
    return lines
