"""How results about versions are printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prefixctl.cli.output import say, talk
from prefixctl.sources.lockentry import entry_value

if TYPE_CHECKING:
    from prefixctl.core.changes import Change, TargetChange
    from prefixctl.core.versions import TargetRecord
    from prefixctl.registry.bump import BumpResult, CheckResult
    from prefixctl.registry.diff import FileDiff, VersionDiff
    from prefixctl.registry.history import History, HistoryEntry
    from prefixctl.registry.publish import AliasChange
    from prefixctl.registry.store.base import Collected

SCHEMA = 1
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
NO_TARGET = "no target in prefixctl.yaml, so tokens and blocks are not known: fill in `targets:`"
_COLOURS = {"live": "green", "previous": "yellow"}


def bump_value(result: BumpResult) -> dict[str, Any]:
    """A bump as JSON."""
    return {
        "schema": SCHEMA,
        "lock": result.lock_path,
        "bumped": [
            {"prompt": b.name, "entry": entry_value(b.entry), "change": change_value(b.change)}
            for b in result.bumped
        ],
        "unchanged": list(result.unchanged),
    }


def print_bump(result: BumpResult) -> None:
    """A bump as text."""
    for bumped in result.bumped:
        say(f"{bumped.name}: version {bumped.entry.version}", "bold")
        if bumped.change is None:
            _print_records(bumped.entry.targets)
        else:
            _print_change(bumped.change, known=bool(bumped.entry.targets))
    if result.unchanged:
        talk().print(f"unchanged: {', '.join(result.unchanged)}", markup=False)
    if not result.bumped:
        talk().print("nothing changed, so the lock was left alone")
    else:
        talk().print(f"written: {result.lock_path}; commit it", markup=False)


def check_value(result: CheckResult) -> dict[str, Any]:
    """A check as JSON."""
    return {
        "schema": SCHEMA,
        "lock": result.lock_path,
        "drifts": [
            {"prompt": d.name, "version": d.version, "change": change_value(d.change)}
            for d in result.drifts
        ],
        "unchanged": list(result.unchanged),
        "gone": list(result.gone),
    }


def print_check(result: CheckResult) -> None:
    """A check as text."""
    for drift in result.drifts:
        if drift.change is None:
            say(f"{drift.name}: has no version yet", "bold red")
            continue
        say(f"{drift.name}: changed since version {drift.version} without a bump", "bold red")
        _print_change(drift.change, known=result.has_targets)
    if result.drifts:
        names = " ".join(d.name for d in result.drifts)
        talk().print(f'run: prefixctl bump {names} --reason "..."', markup=False)
    else:
        talk().print(f"{len(result.unchanged)} prompts equal {result.lock_path}", markup=False)
    if result.gone:
        talk().print(f"note: in the lock, but not in the work tree: {', '.join(result.gone)}")


def diff_value(result: VersionDiff) -> dict[str, Any]:
    """A diff as JSON."""
    return {
        "schema": SCHEMA,
        "prompt": result.name,
        "old": result.old,
        "new": result.new,
        "parts": list(result.parts),
        "files": [asdict(f) for f in result.files],
        "targets": [
            {
                "target": t.target,
                "exact": t.exact,
                "first_token": t.first_token,
                "change": None if t.change is None else target_value(t.change),
            }
            for t in result.targets
        ],
        "remarks": list(result.remarks),
    }


def print_diff(result: VersionDiff) -> None:
    """A diff as text."""
    say(f"{result.name}: {result.old} -> {result.new}", "bold")
    for part in result.parts:
        say(f"  {part}")
    if not result.parts:
        say("  same text")
    _print_files(result.files)
    for target in result.targets:
        if target.change is None:
            say(f"target {target.target}: same prefix")
            continue
        first = "" if target.first_token is None else f"first other token {target.first_token:,}; "
        say(f"target {target.target}: {first}{_cost(target.change)}")
    if result.parts and not result.targets:
        talk().print(NO_TARGET, markup=False)
    for remark in result.remarks:
        talk().print(remark, markup=False)


def history_value(result: History) -> dict[str, Any]:
    """A history as JSON."""
    return {
        "schema": SCHEMA,
        "prompt": result.name,
        "versions": [
            {
                "entry": entry_value(v.entry),
                "standing": v.standing.value,
                "published_at": v.stored.published_at.isoformat() if v.stored else None,
                "retired_at": (
                    v.stored.retired_at.isoformat() if v.stored and v.stored.retired_at else None
                ),
                "change": change_value(v.change),
            }
            for v in result.versions
        ],
        "stability": [asdict(s) | {"share": s.share} for s in result.stability],
        "moves": [asdict(m) | {"at": m.at.isoformat()} for m in result.moves],
    }


def print_history(result: History) -> None:
    """A history as text, newest first."""
    for version in reversed(result.versions):
        _print_version(version)
    for s in result.stability:
        if s.releases:
            say(
                f"target {s.target}: {s.changed} of {s.releases} releases changed the prefix "
                f"({s.share:.0%})"
            )
    for move in result.moves:
        before = "nothing" if move.before is None else str(move.before)
        say(f"{move.at:%Y-%m-%d %H:%M:%S} {move.action}: {before} -> {move.after}, by {move.by}")
    if not result.versions:
        talk().print(f"'{result.name}' has no version yet: prefixctl bump", markup=False)


def aliases_value(changes: Sequence[AliasChange]) -> dict[str, Any]:
    """Moves of aliases as JSON."""
    return {"schema": SCHEMA, "prompts": [asdict(c) for c in changes]}


def print_aliases(changes: Sequence[AliasChange]) -> None:
    """Moves of aliases as text."""
    for c in changes:
        was = "" if c.was_live is None else f" (was {c.was_live})"
        previous = "none" if c.previous is None else str(c.previous)
        state = f"live {c.live}{was}" if c.is_new else f"live {c.live} already"
        say(f"{c.name}: {state}, previous {previous}")


def collected_value(found: Collected, *, dry_run: bool) -> dict[str, Any]:
    """A collection as JSON."""
    return {"schema": SCHEMA, "dry_run": dry_run, **asdict(found)}


def change_value(change: Change | None) -> dict[str, Any] | None:
    """A change as JSON."""
    if change is None:
        return None
    return {
        "content": list(change.content),
        "targets": [target_value(t) for t in change.targets],
    }


def target_value(change: TargetChange) -> dict[str, Any]:
    """A change on a target as JSON."""
    return asdict(change) | {"cold_blocks": change.cold_blocks}


def _print_change(change: Change, *, known: bool) -> None:
    """What changed and what it costs; `known` says whether there was a target to count on."""
    for part in change.content:
        say(f"  {part}")
    for target in change.targets:
        causes = f" ({'; '.join(target.causes)})" if target.causes else ""
        say(f"  target {target.target}{causes}: {_cost(target)}")
    if not known:
        say(f"  {NO_TARGET}")
    elif not change.targets:
        say("  no token of a shared prefix becomes cold")


def _cost(change: TargetChange) -> str:
    stay = f"{change.kept_blocks:,} full blocks of {change.block_size} stay"
    if not change.cold_tokens and not change.new_tokens:
        return stay
    return (
        f"{stay}, {change.cold_blocks:,} become cold ({change.cold_tokens:,} tokens), "
        f"{change.new_tokens:,} tokens to compute"
    )


def _print_records(targets: Mapping[str, TargetRecord]) -> None:
    if not targets:
        say(f"  {NO_TARGET}")
    for name, record in targets.items():
        short = "" if record.governed else ", too short to be governed"
        say(
            f"  target {name}: {record.shared_tokens:,} shared tokens, {record.full_blocks:,} "
            f"full blocks of {record.block_size}{short}"
        )


def _print_files(files: Iterable[FileDiff]) -> None:
    for file in files:
        if file.status.value != "same":
            say(f"{file.kind} {file.file}: {file.status.value}", "bold")
            for line in file.lines:
                say(line, _DIFF_STYLES.get(line[:1], ""))


def _print_version(version: HistoryEntry) -> None:
    entry, signature = version.entry, version.entry.signature
    approved = f", approved by {signature.approver}" if signature.approver else ""
    standing = "" if version.standing.value == "absent" else f" [{version.standing.value}]"
    say(
        f"{entry.version}{standing} {signature.date:%Y-%m-%d} {signature.author}{approved}: "
        f"{signature.reason}",
        _COLOURS.get(version.standing.value, ""),
    )
    if signature.note:
        say(f"  note: {signature.note}")
    if version.change is not None:
        _print_change(version.change, known=bool(entry.targets))
