"""SARIF 2.1.0, for code scanning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixctl import __version__
from prefixctl.core.findings import Finding, Location, Severity
from prefixctl.lint.fix import Proposed
from prefixctl.lint.formats.sarif_fixes import fix_value, uri_of
from prefixctl.lint.page import RulePage
from prefixctl.lint.pages import all_pages
from prefixctl.lint.report import LintReport

VERSION = "2.1.0"
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def to_sarif(
    report: LintReport, fixes: Mapping[tuple[str, Location], Proposed] | None = None
) -> dict[str, Any]:
    """The report as one SARIF log. Findings that are allowed or known are marked suppressed.

    Args:
        report: The report.
        fixes: Safe fixes by rule and place.
    """
    pages = all_pages()
    index = {page.rule.id: i for i, page in enumerate(pages)}
    results = []
    for file in report.files:
        results += [
            _result(f, index) | fix_value((fixes or {}).get((f.rule, f.location)))
            for f in file.findings
        ]
        results += [
            _result(s.finding, index, suppression=("inSource", s.reason)) for s in file.suppressed
        ]
        results += [
            _result(f, index, suppression=("external", "in the baseline")) for f in file.baselined
        ]
    driver = {
        "name": "prefixctl",
        "semanticVersion": __version__,
        "rules": [_rule(page) for page in pages],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not report.unreadable}],
        "results": results,
    }
    return {"$schema": SCHEMA_URI, "version": VERSION, "runs": [run]}


def _rule(page: RulePage) -> dict[str, Any]:
    rule = page.rule
    title = page.markdown.splitlines()[2]
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": title},
        "help": {"text": page.markdown, "markdown": page.markdown},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"precision": "very-high" if rule.confidence.name == "HIGH" else "medium"},
    }


def _result(
    finding: Finding, index: dict[str, int], *, suppression: tuple[str, str] | None = None
) -> dict[str, Any]:
    place = finding.location
    text = f"{finding.message}. Advice: {finding.advice}" if finding.advice else finding.message
    made: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index[finding.rule],
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri_of(place.path)},
                    "region": {"startLine": place.line, "startColumn": place.column},
                }
            }
        ],
        "partialFingerprints": {"prefixctl/v1": finding.fingerprint},
        "properties": {"confidence": finding.confidence.label, "tokens_lost": finding.tokens_lost},
    }
    if suppression is not None:
        kind, why = suppression
        made["suppressions"] = [{"kind": kind, "justification": why}]
    return made
