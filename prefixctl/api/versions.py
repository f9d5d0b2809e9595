"""Versions as a library: bump, check, diff, history, show, publish, rollback, remove expired."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from prefixctl.config import Config
from prefixctl.core.versions import Signature
from prefixctl.registry.bump import BumpResult, CheckResult, bump, check
from prefixctl.registry.diff import VersionDiff, diff
from prefixctl.registry.history import History, history
from prefixctl.registry.publish import AliasChange, Wanted, gc, publish, rollback
from prefixctl.registry.show import Shown, show
from prefixctl.registry.store.base import Collected, Stamp


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
    return publish(config, wanted, stamp=Stamp(at=at, by=by))


def rollback_prompt(
    config: Config, name: str, to: int | None = None, *, by: str, now: datetime | None = None
) -> AliasChange:
    """Make an earlier version live again. See `prefixctl.registry.publish.rollback`."""
    return rollback(config, name, to, stamp=Stamp(at=now or _now(), by=by))


def remove_expired(
    config: Config, *, now: datetime | None = None, dry_run: bool = False
) -> Collected:
    """Remove retired versions after their retention. See `prefixctl.registry.publish.gc`."""
    return gc(config, now or _now(), dry_run=dry_run)


def _now() -> datetime:
    return datetime.now(UTC)
