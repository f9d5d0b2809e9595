"""Give changed prompts their next version, or say which ones lack it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from prefixctl.config import Config
from prefixctl.core.changes import Change, changed_parts, compare
from prefixctl.core.prompt import Prompt
from prefixctl.core.versions import (
    Content,
    Lock,
    PrefixVersion,
    Signature,
    TargetRecord,
    content_of,
    successor,
)
from prefixctl.errors import UsageError
from prefixctl.ids import PromptName
from prefixctl.prompts.target import load_targets
from prefixctl.registry.worktree import (
    governed_prompts,
    refuse_unknown_parameters,
    target_records,
)
from prefixctl.sources.lockfile import load_lock, update_lock

FIRST_REASON = "first version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bumped:
    """A prompt that got a version. `change` is None for the first one."""

    name: PromptName
    entry: PrefixVersion
    change: Change | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpResult:
    """What a bump did. Nothing was written if `bumped` is empty."""

    lock_path: str
    bumped: tuple[Bumped, ...]
    unchanged: tuple[PromptName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A prompt that is not what the newest entry of the lock says.

    Attributes:
        name: The prompt.
        version: Its newest version, None if it was never bumped.
        change: What differs, None if it was never bumped.
    """

    name: PromptName
    version: int | None
    change: Change | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What `bump --check` found.

    Attributes:
        lock_path: The lock file.
        drifts: Prompts that changed.
        unchanged: Prompts that did not.
        gone: Prompts that the lock has and the work tree has not: retired, or lost.
        has_targets: Whether the configuration names a target; without one no token is counted.
    """

    lock_path: str
    drifts: tuple[Drift, ...]
    unchanged: tuple[PromptName, ...]
    gone: tuple[PromptName, ...] = ()
    has_targets: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A prompt of the work tree as the next version would record it."""

    name: PromptName
    content: Content
    targets: Mapping[str, TargetRecord]

    def change_since(self, entry: PrefixVersion) -> Change:
        return compare(entry.content, entry.targets, self.content, self.targets)


def bump(config: Config, names: Sequence[str], signature: Signature) -> BumpResult:
    """Append a version for every prompt whose text, or whose key on a target, changed.

    Args:
        config: The configuration.
        names: Prompts to look at; all of them if empty.
        signature: Who, why, when; the date is cut to seconds. A reason may be empty only if
            nothing but first versions is to be written.

    Raises:
        UsageError: If a reason is missing, or there is no prompt of a given name.
        LockError: If the lock cannot be used or written.
        PromptError, ConfigError, TokenizerError: If a prompt or a target is wrong.
    """
    _refuse_broken_words(signature)
    drafts = _drafts(config, names)
    signature = replace(signature, date=signature.date.replace(microsecond=0))
    bumped: list[Bumped] = []

    def change(lock: Lock) -> Lock:
        bumped.clear()
        for draft in drafts:
            made = _next_version(draft, lock.newest(draft.name), signature)
            if made is not None:
                bumped.append(made)
                lock = lock.with_entry(draft.name, made.entry)
        return lock

    update_lock(config.lock_path, change)
    names_bumped = {b.name for b in bumped}
    return BumpResult(
        lock_path=str(config.lock_path),
        bumped=tuple(bumped),
        unchanged=tuple(d.name for d in drafts if d.name not in names_bumped),
    )


def check(config: Config, names: Sequence[str] = ()) -> CheckResult:
    """Find prompts that changed without a bump. Reads only; needs no registry.

    Errors as in `bump`, but for the reason.
    """
    lock = load_lock(config.lock_path)
    drifts: list[Drift] = []
    unchanged: list[PromptName] = []
    for draft in _drafts(config, names):
        entry = lock.newest(draft.name)
        change = draft.change_since(entry) if entry else None
        if entry is not None and not change:
            unchanged.append(draft.name)
            continue
        version = entry.version if entry else None
        drifts.append(Drift(name=draft.name, version=version, change=change))
    here = {*unchanged, *(d.name for d in drifts)}
    return CheckResult(
        lock_path=str(config.lock_path),
        drifts=tuple(drifts),
        unchanged=tuple(unchanged),
        gone=() if names else tuple(n for n in lock.prompts if n not in here),
        has_targets=bool(config.targets),
    )


def unbumped(prompt: Prompt, lock: Lock) -> str | None:
    """A sentence if a prompt's text differs from the lock's newest version of it, else None."""
    entry = lock.newest(prompt.name)
    if entry is None:
        return f"'{prompt.name}' has no version in {lock.path}"
    parts = changed_parts(entry.content, content_of(prompt))
    if not parts:
        return None
    return f"'{prompt.name}' changed since version {entry.version}: {'; '.join(parts)}"


def _drafts(config: Config, names: Sequence[str]) -> list[_Draft]:
    prompts = governed_prompts(config, names)
    if not names:
        refuse_unknown_parameters(config, prompts)
    targets = load_targets(config)
    return [
        _Draft(name=p.name, content=content_of(p), targets=target_records(config, p, targets))
        for p in prompts
    ]


def _refuse_broken_words(signature: Signature) -> None:
    """Refuse bytes of a command line that were no text: a registry could not store them."""
    for field in ("reason", "author", "approver", "note"):
        try:
            getattr(signature, field).encode()
        except UnicodeEncodeError as exc:
            raise UsageError(f"the {field} is not Unicode text") from exc


def _next_version(
    draft: _Draft, before: PrefixVersion | None, signature: Signature
) -> Bumped | None:
    change = draft.change_since(before) if before else None
    if before is not None and not change:
        return None
    if not signature.reason:
        if before is not None:
            raise UsageError(
                f"'{draft.name}' changed since version {before.version}, and a version needs a "
                "reason",
                hint="give --reason",
            )
        signature = replace(signature, reason=FIRST_REASON)
    entry = successor(before, draft.content, draft.targets, signature)
    return Bumped(name=draft.name, entry=entry, change=change)
