"""GitLab's code quality report."""

from __future__ import annotations

from typing import Any

from prefixctl.core.findings import Finding, Severity
from prefixctl.lint.report import LintReport

SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.INFO: "info"}


def to_gitlab(report: LintReport) -> list[dict[str, Any]]:
    """One issue for each finding. Paths must count from the repository: start lint there."""
    return [_issue(f) for f in report.findings]


def _issue(finding: Finding) -> dict[str, Any]:
    place = finding.location
    text = f"{finding.message}. Advice: {finding.advice}" if finding.advice else finding.message
    return {
        "description": f"{finding.rule} {text}",
        "check_name": finding.name,
        "fingerprint": finding.fingerprint,
        "severity": SEVERITIES[finding.severity],
        "location": {
            "path": place.path.removeprefix("./"),
            "lines": {"begin": place.line},
        },
    }
