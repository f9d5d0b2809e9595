"""Workflow commands: the annotations that GitHub shows beside the changed lines."""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Finding, Severity
from prefixctl.lint.report import LintReport
from prefixctl.lint.text import summary_line

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = _DATA | {":": "%3A", ",": "%2C"}


def to_github(report: LintReport) -> str:
    """One command for each finding, and the figures as a last line."""
    return "\n".join([*_commands(report), escaped(summary_line(report))])


def _commands(report: LintReport) -> Iterator[str]:
    for finding in report.findings:
        yield _command(finding)


def _command(finding: Finding) -> str:
    place = finding.location
    properties = {
        "file": place.path.removeprefix("./"),
        "line": str(place.line),
        "col": str(place.column),
        "title": f"{finding.rule} {finding.name}",
    }
    named = ",".join(f"{k}={_replaced(v, _PROPERTY)}" for k, v in properties.items())
    text = f"{finding.message}\n{finding.advice}" if finding.advice else finding.message
    return f"::{_COMMANDS[finding.severity]} {named}::{escaped(text)}"


def escaped(text: str) -> str:
    """A text that cannot end its command or begin another one."""
    return _replaced(text, _DATA)


def _replaced(text: str, table: dict[str, str]) -> str:
    return "".join(table.get(c, c) for c in text)
