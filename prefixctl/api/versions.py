"""Versions as a library: bump, check, diff, history, show, publish, rollback, remove expired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from prefixctl.api.tiers import tier_folder
from prefixctl.config import Config
from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import Prompt
from prefixctl.core.versions import Signature
from prefixctl.errors import RegistryError
from prefixctl.lint.tokens import EstimatedTokens, ExactTokens, TokenCounter
from prefixctl.prompts.render import render
from prefixctl.prompts.target import load_targets
from prefixctl.registry.bump import BumpResult, CheckResult, bump, check
from prefixctl.registry.bump_traffic import Traffic, traffic_of
from prefixctl.registry.diff import VersionDiff, diff
from prefixctl.registry.history import History, history
from prefixctl.registry.publish import AliasChange, Wanted, gc, publish, rollback
from prefixctl.registry.show import Shown, show
from prefixctl.registry.sides import resolve
from prefixctl.registry.store.base import Collected, Stamp
from prefixctl.sources.lockfile import load_lock
from prefixctl.tiers.admin import retire_version
from prefixctl.tiers.folder import TierFolder


def bump_prompts(
    config: Config,
    names: Sequence[str] = (),
    *,
    reason: str,
    author: str,
    approver: str = "",
    note: str = "",
    now: datetime | None = None,
) -> BumpResult:
    """Append a version for every prompt that changed. See `prefixctl.registry.bump.bump`."""
    signature = Signature(
        reason=reason, author=author, approver=approver, note=note, date=now or _now()
    )
    return bump(config, names, signature)


def check_prompts(config: Config, names: Sequence[str] = ()) -> CheckResult:
    """Find prompts that changed without a bump. See `prefixctl.registry.bump.check`."""
    return check(config, names)


def check_traffic(config: Config, result: CheckResult, log: Path) -> Traffic:
    """Which share of the traffic in a request log goes cold by what a check found.

    Requests without logged usage are counted with the first target's tokenizer, or estimated.
    See `prefixctl.registry.bump_traffic.traffic_of`.
    """
    targets = load_targets(config, list(config.targets)[:1])
    counter: TokenCounter = EstimatedTokens()
    if targets:
        counter = ExactTokens(targets[0].tokenizer.encode)
    return traffic_of(config, result, log, count=counter.count, exact=counter.exact)


def diff_versions(
    config: Config, name: str, old: str | None = None, new: str | None = None
) -> VersionDiff:
    """Compare two versions of a prompt. See `prefixctl.registry.diff.diff`."""
    return diff(config, name, old, new)


def prompt_history(config: Config, name: str) -> History:
    """The versions of a prompt. See `prefixctl.registry.history.history`."""
    return history(config, name)


def show_prompt(
    config: Config, name: str, ref: str | None = None, *, target: str | None = None
) -> Shown:
    """Render a version of a prompt. See `prefixctl.registry.show.show`."""
    return show(config, name, ref, target=target)


def prompt_text(config: Config, name: str, ref: str | None = None) -> Prompt:
    """A version with the bytes of its files: a number, ``live``, ``previous``, or the work tree.

    Raises:
        UsageError: If there is no such prompt, or the reference is no version.
        RegistryError: If its text is neither in the registry nor in the work tree.
    """
    side = resolve(config, load_lock(config.lock_path), name, ref)
    if side.prompt is None:
        raise RegistryError(
            f"the text of {name}@{side.label} is neither in the registry nor in the work tree"
        )
    return side.prompt


def render_request(
    config: Config,
    name: str,
    ref: str | None = None,
    *,
    values: Mapping[str, str],
    target: str | None = None,
) -> ChatRequest:
    """The chat request that a client sends for a version: its messages and tools.

    Args:
        config: The configuration.
        name: The prompt.
        ref: As for `prompt_text`.
        values: By parameter; those of the target go without saying.
        target: Where deployment values come from; may be left out if there is one only.

    Raises:
        PromptError: If a value is missing.
        UsageError, RegistryError: As `prompt_text`.
    """
    prompt = prompt_text(config, name, ref)
    given = dict(config.only_target(target)[1].parameters) if config.targets or target else {}
    return render(prompt, {k: v for k, v in {**given, **values}.items() if k in prompt.parameters})


def publish_prompts(
    config: Config,
    wanted: Sequence[Wanted] = (),
    *,
    by: str,
    now: datetime | None = None,
) -> list[AliasChange]:
    """Make versions live: those given, or the newest of every prompt of the lock.

    With ``prefix_cache.versioned: false`` a changed prompt is bumped first.
    See `prefixctl.registry.publish.publish`.
    """
    at = now or _now()
    if not config.prefix_cache.versioned:
        unpinned = [w.name for w in wanted if w.version is None]
        if unpinned or not wanted:
            bump_prompts(
                config, unpinned, reason="changed when it was published", author=by, now=at
            )
    changes = publish(config, wanted, stamp=Stamp(at=at, by=by))
    _keep_in_tier(config, changes)
    return changes


def rollback_prompt(
    config: Config, name: str, to: int | None = None, *, by: str, now: datetime | None = None
) -> AliasChange:
    """Make an earlier version live again. See `prefixctl.registry.publish.rollback`."""
    change = rollback(config, name, to, stamp=Stamp(at=now or _now(), by=by))
    _keep_in_tier(config, [change])
    return change


def remove_expired(
    config: Config, *, now: datetime | None = None, dry_run: bool = False
) -> Collected:
    """Remove retired versions after their retention. See `prefixctl.registry.publish.gc`.

    Their blocks in the disk tier of this host, if it has one, go first from then on.
    """
    found = gc(config, now or _now(), dry_run=dry_run)
    folder = tier_folder(config)
    if folder is not None and not dry_run:
        for ref in found.versions:
            retire_version(folder, f"{ref.name}@{ref.version}")
    return found


def _keep_in_tier(config: Config, changes: Sequence[AliasChange]) -> None:
    """What is live again does not go first any longer."""
    folder = tier_folder(config)
    retired = frozenset() if folder is None else TierFolder(folder).retired()
    for label in (f"{change.name}@{change.live}" for change in changes):
        if folder is not None and label in retired:
            retire_version(folder, label, undo=True)


def _now() -> datetime:
    return datetime.now(UTC)
