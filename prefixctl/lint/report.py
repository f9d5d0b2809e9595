"""The result of lint: one report per file, and all of it as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefixctl.core.findings import Confidence, Finding, Location, Severity, Suppressed, Verdict
from prefixctl.core.prompt import Volatility

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedValue:
    """A value that a prompt prints, whether or not it is a finding.

    Attributes:
        variable: The variable or function.
        kind: What makes it change; ``unknown`` if its name says nothing.
        volatility: How often, if that is known.
        confidence: How sure.
        reason: Why, in words.
        location: Where it is printed.
    """

    variable: str
    kind: str
    volatility: Volatility | None
    confidence: Confidence
    reason: str
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What lint says of one file, or of one governed prompt.

    Attributes:
        path: The file; a governed prompt goes by its prompt.yaml.
        format: What it was read as.
        verdict: Of the worst printed value.
        prefix_tokens: Static tokens ahead of the first value that changes.
        total_tokens: All static tokens.
        full_blocks: Whole blocks in the prefix.
        tokens_lost: Static tokens behind the first value that ends the shared prefix.
        tokens_exact: Whether the counts are the tokenizer's, or estimates.
        findings: In the order of the file.
        values: Everything that is printed and is no static text.
        lines: The source lines that findings point to.
        suppressed: Findings that comments in the file allow; not among the findings.
        baselined: Findings that the baseline knows; not among the findings.
        ignored: How many findings the configuration does not count.
    """

    path: str
    format: str
    verdict: Verdict
    prefix_tokens: int = 0
    total_tokens: int = 0
    full_blocks: int = 0
    tokens_lost: int = 0
    tokens_exact: bool = False
    findings: tuple[Finding, ...] = ()
    values: tuple[PrintedValue, ...] = ()
    lines: Mapping[Location, str] = field(default_factory=dict, repr=False)
    suppressed: tuple[Suppressed, ...] = ()
    baselined: tuple[Finding, ...] = ()
    ignored: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A finding that a baseline knows.

    Attributes:
        rule: The id of its rule.
        path: The file, from the folder of the configuration.
        fingerprint: See `prefixctl.lint.baseline`.
    """

    rule: str
    path: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """What lint says of all files.

    Attributes:
        files: Sorted by path.
        block_size: Tokens in a block.
        target: The target's name, if one was given.
        stale: Entries of the baseline that nothing corresponds to any more.
        passed_over: Source files of the folders that were not looked at.
    """

    files: tuple[FileReport, ...]
    block_size: int
    target: str | None = None
    stale: tuple[Known, ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings of all files."""
        return tuple(f for file in self.files for f in file.findings)

    @property
    def unreadable(self) -> bool:
        """Whether a file could not be read."""
        return any(f.verdict is Verdict.ERROR for f in self.files)

    def reaches(self, threshold: Severity | None) -> bool:
        """Whether a finding is at least as bad as the threshold; never without one."""
        return threshold is not None and any(f.severity >= threshold for f in self.findings)


def to_json(report: LintReport) -> dict[str, Any]:
    """The report as one JSON document."""
    return {
        "schema": SCHEMA,
        "target": report.target,
        "block_size": report.block_size,
        "files": [_file(f) for f in report.files],
        "summary": summary(report),
        "stale_baseline": [
            {"rule": k.rule, "path": k.path, "fingerprint": k.fingerprint} for k in report.stale
        ],
    }


def summary(report: LintReport) -> dict[str, Any]:
    """Numbers of files by verdict and of findings by severity."""
    verdicts = Counter(f.verdict for f in report.files)
    severities = Counter(f.severity for f in report.findings)
    return {
        "files": len(report.files),
        "verdicts": {v.value: verdicts[v] for v in Verdict},
        "findings": {s.label: severities[s] for s in sorted(Severity, reverse=True)},
        "tokens_lost": sum(f.tokens_lost for f in report.files),
        "tokens_exact": all(f.tokens_exact for f in report.files),
        "suppressed": sum(len(f.suppressed) for f in report.files),
        "baselined": sum(len(f.baselined) for f in report.files),
        "ignored": sum(f.ignored for f in report.files),
        "stale_baseline": len(report.stale),
        "passed_over": len(report.passed_over),
    }


def _file(report: FileReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "format": report.format,
        "verdict": report.verdict.value,
        "prefix_tokens": report.prefix_tokens,
        "total_tokens": report.total_tokens,
        "full_blocks": report.full_blocks,
        "tokens_lost": report.tokens_lost,
        "tokens_exact": report.tokens_exact,
        "findings": [_finding(f) for f in report.findings],
        "values": [_value(v) for v in report.values],
        "suppressed": len(report.suppressed),
        "baselined": len(report.baselined),
        "ignored": report.ignored,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity.label,
        "confidence": finding.confidence.label,
        "path": finding.location.path,
        "line": finding.location.line,
        "column": finding.location.column,
        "variable": finding.variable,
        "volatility": None if finding.volatility is None else finding.volatility.label,
        "message": finding.message,
        "advice": finding.advice,
        "tokens_lost": finding.tokens_lost,
        "fingerprint": finding.fingerprint,
    }


def _value(value: PrintedValue) -> dict[str, Any]:
    return {
        "variable": value.variable,
        "kind": value.kind,
        "volatility": "unknown" if value.volatility is None else value.volatility.label,
        "confidence": value.confidence.label,
        "reason": value.reason,
        "path": value.location.path,
        "line": value.location.line,
        "column": value.location.column,
    }
