"""A baseline: the findings that a repository has today, so that only new ones fail.

A finding is named by its rule, its file, the words of its line and, where several are equal in all
of these, by its place among them. So it keeps its name when lines move.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefixctl.core.findings import Finding
from prefixctl.errors import InputError
from prefixctl.lint.report import FileReport, Known, LintReport
from prefixctl.lint.rules import pfx000_unreadable
from prefixctl.sources.files import replace_file
from prefixctl.yamlfile import is_there, read_bytes

SCHEMA = 1
_CHARS = 32
_FIELDS = ("rule", "path", "fingerprint")


def with_fingerprints(report: LintReport, root: Path) -> LintReport:
    """The report with the fingerprint of every finding.

    Args:
        report: The report.
        root: The folder that paths count from, so that they are the same wherever lint is started.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    return replace(report, files=tuple(_named(f, root, counts) for f in report.files))


def load_baseline(path: Path, family: frozenset[str] | None = None) -> tuple[Known, ...]:
    """Read a baseline.

    Args:
        path: The file.
        family: Ids of the rules whose findings count; one file may serve `lint` and `settings`.

    Raises:
        InputError: If it is missing or no baseline.
    """
    again = "write one with `prefixctl lint --write-baseline FILE`"
    try:
        kept = json.loads(read_bytes(path, hint=again))
        known = [Known(**{name: str(k[name]) for name in _FIELDS}) for k in kept["findings"]]
        schema = kept["schema"]
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise InputError("is no baseline of lint", path=str(path), hint=again) from exc
    if schema != SCHEMA:
        message = f"is a baseline of schema {schema!r}; this version reads {SCHEMA}"
        raise InputError(message, path=str(path), hint=again)
    return tuple(k for k in known if family is None or k.rule in family)


def apply_baseline(report: LintReport, baseline: Sequence[Known], root: Path) -> LintReport:
    """The report without the findings that a baseline knows, and with its stale entries.

    An entry is stale if its file was linted, or is gone, and the finding is no longer there.
    """
    known = {k.fingerprint for k in baseline}
    files = tuple(_without(file, known) for file in report.files)
    matched = {f.fingerprint for file in files for f in file.baselined}
    seen = {p for file in report.files for p in _paths(file, root)}
    stale = tuple(
        k
        for k in baseline
        if k.fingerprint not in matched and (k.path in seen or not (root / k.path).exists())
    )
    return replace(report, files=files, stale=stale)


def write_baseline(
    report: LintReport, path: Path, root: Path, family: frozenset[str] | None = None
) -> int:
    """Write all findings of a report as a baseline; a file that cannot be read is never in one.

    Args:
        report: With fingerprints.
        path: The file.
        root: See `with_fingerprints`.
        family: Ids of the rules that were run; what the file knows of others stays in it.

    Returns:
        The number of findings in it.

    Raises:
        InputError: If the file cannot be written.
    """
    entries = sorted(
        {
            (relative(f.location.path, root), f.rule, f.fingerprint)
            for f in report.findings
            if _may_be_known(f)
        }
    )
    others = [] if family is None else _of_others(path, family)
    kept: dict[str, Any] = {
        "schema": SCHEMA,
        "findings": [
            {"path": p, "rule": r, "fingerprint": f} for p, r, f in sorted([*entries, *others])
        ],
    }
    write_file(path, (json.dumps(kept, indent=2, ensure_ascii=False) + "\n").encode())
    return len(entries)


def _of_others(path: Path, family: frozenset[str]) -> list[tuple[str, str, str]]:
    """The entries of a baseline that is there already, of rules that were not run."""
    if not is_there(path):
        return []
    try:
        known = load_baseline(path)
    except InputError as exc:
        exc.hint = f"{'remove it, or ' * path.is_file()}write to another file"
        raise
    return [(k.path, k.rule, k.fingerprint) for k in known if k.rule not in family]


def write_file(path: Path, data: bytes) -> None:
    """Put a file's new content in its place at once; its permissions stay.

    Raises:
        InputError: If that cannot be done.
    """
    try:
        replace_file(path, data)
    except OSError as exc:
        raise InputError(f"cannot be written: {exc.strerror}", path=str(path)) from exc


def relative(path: str, root: Path) -> str:
    """A path from the root, with ``/``; as it is if it lies elsewhere."""
    full, top = Path(path).absolute(), root.absolute()
    return (full.relative_to(top) if full.is_relative_to(top) else Path(path)).as_posix()


def _named(file: FileReport, root: Path, counts: Counter[tuple[str, str, str]]) -> FileReport:
    def named(findings: Iterable[Finding]) -> tuple[Finding, ...]:
        made = []
        for finding in findings:
            line = " ".join(file.lines.get(finding.location, "").split())
            key = (finding.rule, relative(finding.location.path, root), line)
            counts[key] += 1
            made.append(replace(finding, fingerprint=_fingerprint(*key, str(counts[key]))))
        return tuple(made)

    findings = named(file.findings)
    allowed = named(s.finding for s in file.suppressed)
    return replace(
        file,
        findings=findings,
        suppressed=tuple(
            replace(s, finding=f) for s, f in zip(file.suppressed, allowed, strict=True)
        ),
    )


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:_CHARS]


def _without(file: FileReport, known: set[str]) -> FileReport:
    taken = [f for f in file.findings if _may_be_known(f) and f.fingerprint in known]
    if not taken:
        return file
    kept = [f for f in file.findings if f not in taken]
    return replace(file, findings=tuple(kept), baselined=tuple(taken))


def _may_be_known(finding: Finding) -> bool:
    return finding.rule != pfx000_unreadable.RULE.id


def _paths(file: FileReport, root: Path) -> set[str]:
    return {relative(p, root) for p in (file.path, *(f.location.path for f in file.findings))}
