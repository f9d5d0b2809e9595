"""What the configuration wants otherwise for some paths: rules, severities, scopes of variables."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from prefixctl.config import DelimitersConfig, LintPathConfig
from prefixctl.core.findings import Finding, Severity
from prefixctl.core.prompt import Parameter
from prefixctl.errors import ConfigError
from prefixctl.lint.families import all_ids
from prefixctl.lint.report import FileReport
from prefixctl.lint.rules import pfx000_unreadable
from prefixctl.sources.files import real_path
from prefixctl.yamlfile import did_you_mean

_UNREADABLE = pfx000_unreadable.RULE.id


class Globs:
    """The paths that some pattern matches: by the path from the root, or by the name alone."""

    def __init__(self, patterns: Sequence[str], root: Path) -> None:
        base = Path(glob.escape(real_path(root).as_posix()))
        self._paths = [(base / p).as_posix() for p in patterns]
        self._names = tuple(patterns)

    def __contains__(self, path: Path) -> bool:
        shown = real_path(path).as_posix()
        return any(fnmatch(shown, p) for p in self._paths) or any(
            fnmatch(path.name, p) for p in self._names
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is wanted for one path.

    Attributes:
        select: Ids of the only rules that count; None for all.
        ignore: Ids of rules that do not.
        severity: Another severity by id.
        variables: Declared scopes, as parameters.
        delimiters: What marks templates instead of Jinja2's own.
    """

    select: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()
    severity: Mapping[str, Severity] = field(default_factory=dict)
    variables: Mapping[str, Parameter] = field(default_factory=dict)
    delimiters: DelimitersConfig | None = None

    def applied(self, report: FileReport) -> FileReport:
        """The report with what is wanted; how many findings do not count is kept."""
        if self.select is None and not (self.ignore or self.severity):
            return report
        kept = tuple(self._graded(f) for f in report.findings if self._counts(f))
        gone = len(report.findings) - len(kept)
        return replace(report, findings=kept, ignored=report.ignored + gone)

    def _counts(self, finding: Finding) -> bool:
        if finding.rule == _UNREADABLE:
            return True
        selected = self.select is None or finding.rule in self.select
        return selected and finding.rule not in self.ignore

    def _graded(self, finding: Finding) -> Finding:
        severity = self.severity.get(finding.rule, finding.severity)
        return finding if severity is finding.severity else replace(finding, severity=severity)


class PerPath:
    """The entries of ``lint.paths``."""

    def __init__(
        self, entries: Sequence[LintPathConfig] = (), *, root: Path = Path(), source: str = ""
    ) -> None:
        """Check the entries.

        Args:
            entries: In the order of the file.
            root: The folder that patterns are relative to.
            source: The configuration file, for messages.

        Raises:
            ConfigError: If an entry names a rule that does not exist or cannot be ignored.
        """
        self._entries = [
            (Globs(entry.match, root), _wishes(entry, f"lint.paths[{i}]", source))
            for i, entry in enumerate(entries)
        ]

    def of(self, path: Path) -> Wishes:
        """What is wanted for a path: all entries that match it, the later ones on top."""
        made = Wishes()
        for globs, wishes in self._entries:
            if path in globs:
                made = Wishes(
                    select=made.select if wishes.select is None else wishes.select,
                    ignore=made.ignore | wishes.ignore,
                    severity={**made.severity, **wishes.severity},
                    variables={**made.variables, **wishes.variables},
                    delimiters=wishes.delimiters or made.delimiters,
                )
        return made


def _wishes(entry: LintPathConfig, where: str, source: str) -> Wishes:
    def ids(words: Sequence[str], key: str) -> frozenset[str]:
        return frozenset(i for word in words for i in _ids(word, f"{where}.{key}", source))

    ignore = ids(entry.ignore, "ignore")
    if _UNREADABLE in ignore:
        raise ConfigError(
            f"{where}.ignore: {_UNREADABLE} cannot be ignored: the file was not checked at all",
            path=source,
            hint="leave such files out with lint.exclude",
        )
    severity = {
        i: Severity[label.upper()]
        for word, label in entry.severity.items()
        for i in _ids(word, f"{where}.severity", source)
    }
    variables = {n: Parameter(name=n, scope=scope) for n, scope in entry.variables.items()}
    return Wishes(
        select=ids(entry.select, "select") if entry.select else None,
        ignore=ignore,
        severity=severity,
        variables=variables,
        delimiters=entry.delimiters,
    )


def _ids(word: str, where: str, source: str) -> tuple[str, ...]:
    """The rules of a name, an id, or the beginning of one."""
    known = all_ids()
    wanted = word.strip()
    if wanted.lower() in known:
        return (known[wanted.lower()],)
    found = tuple(dict.fromkeys(i for i in known.values() if i.startswith(wanted.upper())))
    if wanted and found and wanted.upper().startswith("PFX"):
        return found
    raise ConfigError(
        f"{where}: no rule '{word}'",
        path=source,
        hint=did_you_mean(wanted.upper() if wanted[:1] in "pP" else wanted.lower(),
                          [*known.values()] if wanted[:1] in "pP" else [*known]),
    )  # fmt: skip
