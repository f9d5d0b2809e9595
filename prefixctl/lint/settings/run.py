"""Check launches: every rule on every one, as one report per file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prefixctl.core.findings import Confidence, Finding, Location, Severity, Verdict
from prefixctl.errors import InputError
from prefixctl.lint.families import setting_ids
from prefixctl.lint.report import FileReport
from prefixctl.lint.rules import pfx000_unreadable
from prefixctl.lint.settings.hide import HIDDEN, hide
from prefixctl.lint.settings.rule import Expected, GovernedPrefix, Setting
from prefixctl.lint.settings.rules import setting_rules
from prefixctl.lint.settings.rules.pfx610_secret import secret_values
from prefixctl.lint.source import source_of
from prefixctl.lint.suppress import suppress_in
from prefixctl.sources.settings.launch import Engine, Launch, SettingsFile

_VERDICTS = {
    Severity.ERROR: Verdict.BREAK,
    Severity.WARNING: Verdict.WARN,
    Severity.INFO: Verdict.OK,
}
_MIN_SECRET = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What launches are compared with.

    Attributes:
        target_of: The target that a launch belongs to, or None.
        prefixes: Governed prompts by target name.
    """

    target_of: Callable[[Launch], Expected | None] = lambda _: None
    prefixes: Callable[[str], tuple[GovernedPrefix, ...]] = lambda _: ()


def check_settings(files: Sequence[SettingsFile], known: Known) -> tuple[FileReport, ...]:
    """One report per file that starts an engine."""
    seen: list[Launch] = []
    reports = []
    for file in files:
        findings: list[Finding] = []
        for launch in file.launches:
            if launch.engine is not Engine.UNKNOWN:
                findings += _check(launch, file, tuple(seen), known)
                seen.append(launch)
        if file.launches:
            reports.append(_allowed(file, _report(file, findings)))
    return tuple(reports)


def unreadable(error: InputError, path: str) -> FileReport:
    """The report of a file that could not be read."""
    rule = pfx000_unreadable.RULE
    finding = Finding(
        rule=rule.id,
        name=rule.name,
        severity=rule.severity,
        confidence=Confidence.HIGH,
        location=Location(path=path, line=error.line or 1, column=error.column or 1),
        message=error.message,
        advice=error.hint or "",
    )
    return FileReport(
        path=path,
        format="unreadable",
        verdict=Verdict.ERROR,
        tokens_exact=True,
        findings=(finding,),
    )


def _allowed(file: SettingsFile, report: FileReport) -> FileReport:
    """The report without what comments in the file allow: on a line, or above its launch."""
    starts = {file.path: sorted(x.location.line for x in file.launches)}
    sources = {file.path: source_of(file.text, file.path)}
    made = suppress_in(report, sources, lambda: starts, setting_ids())
    secrets = {v for launch in file.launches for v in secret_values(launch)}
    return replace(made, lines={at: _masked(line, secrets) for at, line in made.lines.items()})


def _check(
    launch: Launch, file: SettingsFile, others: tuple[Launch, ...], known: Known
) -> list[Finding]:
    target = known.target_of(launch)
    setting = Setting(
        launch=launch,
        format=file.format,
        others=others,
        target=target,
        prefixes=known.prefixes(target.name) if target else (),
    )
    return [f for rule in setting_rules() for f in rule.check(rule, setting)]


def _report(file: SettingsFile, findings: list[Finding]) -> FileReport:
    found = sorted(
        dict.fromkeys(findings), key=lambda f: (f.location.line, f.location.column, f.rule)
    )
    secrets = {v for launch in file.launches for v in secret_values(launch)}
    worst = max((f.severity for f in found), default=Severity.INFO)
    return FileReport(
        path=file.path,
        format=file.format,
        verdict=_VERDICTS[worst],
        tokens_exact=True,
        findings=tuple(replace(f, message=_masked(f.message, secrets)) for f in found),
        lines={f.location: _masked(file.lines.get(f.location.line, ""), secrets) for f in found},
    )


def _masked(text: str, secrets: set[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET:
            text = text.replace(secret, HIDDEN)
    return hide(text)
