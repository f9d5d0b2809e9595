"""The report as text: place, finding, source line with a caret, advice, a last line of figures."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from prefixctl.core.findings import Finding, Verdict
from prefixctl.lint.evaluate.names import is_unknown
from prefixctl.lint.report import FileReport, LintReport, summary

MAX_LINE_CHARS = 120
SHOWN_RULES = 3
SHOWN_NAMES = 3
CHAT = "chat-template"
GUESS = ": its name says "
"""What a message says where only the name of a variable tells how often it changes."""


def to_text(report: LintReport) -> str:
    """The report as lines of text without a final line end."""
    lines = [line for file in report.files for line in _file(file)]
    return "\n".join(
        [*lines, *_stale(report), *_more(report), *_unseen(report), summary_line(report)]
    )


def _file(report: FileReport) -> Iterator[str]:
    for finding in report.findings:
        place = finding.location
        yield (
            f"{place.path}:{place.line}:{place.column}: {finding.severity.label} {finding.rule} "
            f"{finding.message}"
        )
        source = report.lines.get(place, "")
        if source.strip():
            yield from _excerpt(finding, source)
        if finding.advice:
            yield f"  advice: {finding.advice}"
        yield ""


def _stale(report: LintReport) -> Iterator[str]:
    for known in report.stale:
        yield f"baseline: {known.path} no longer has the {known.rule} that it was allowed"
    if report.stale:
        yield "  advice: write the baseline anew with --write-baseline, so that it hides no new one"
        yield ""


def _more(report: LintReport) -> Iterator[str]:
    """Where a reader goes from here: what a rule means, and what to do about a wrong one."""
    rules = sorted({f.rule for f in report.findings})
    if not rules:
        return
    shown = ", ".join(f"`prefixctl rule {rule}`" for rule in rules[:SHOWN_RULES])
    yield f"more: {shown}{' ...' if len(rules) > SHOWN_RULES else ''}"
    if any(GUESS in f.message for f in report.findings):
        yield (
            "      where a name misleads, declare how often the value changes: `variables` under "
            "`lint.paths` in prefixctl.yaml"
        )


def _unseen(report: LintReport) -> Iterator[str]:
    """What the findings say nothing about."""
    names = {v.variable.split(".")[0]: None for f in report.files for v in f.values
             if f.format != CHAT and v.kind == "unknown" and is_unknown(v.variable)}  # fmt: skip
    if names:
        shown = ", ".join([*names][:SHOWN_NAMES]) + (", ..." if len(names) > SHOWN_NAMES else "")
        yield (
            f"{len(names):,} value{'s' * (len(names) != 1)} unknown: {shown}; declare how often "
            "they change, or use --sample"
        )
    count = len(report.passed_over)
    if count:
        yield (
            f"{count:,} source file{'s' * (count != 1)} not looked at "
            f"({report.passed_over[0]}{', ...' if count > 1 else ''}): name what holds prompts"
        )


def _excerpt(finding: Finding, source: str) -> Iterator[str]:
    """The source line, cut around the column, and a caret below it."""
    column = finding.location.column - 1
    start = max(0, column - MAX_LINE_CHARS // 2) if len(source) > MAX_LINE_CHARS else 0
    shown = _printable(source[start : start + MAX_LINE_CHARS])
    number = str(finding.location.line)
    yield f"  {number} | {shown}"
    yield f"  {' ' * len(number)} | {' ' * _width(shown[: column - start])}^"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def summary_line(report: LintReport) -> str:
    """The figures of all files in one line."""
    figures = summary(report)
    verdicts = ", ".join(
        f"{figures['verdicts'][v.value]} {v.value}" for v in Verdict if figures["verdicts"][v.value]
    )
    severities = ", ".join(f"{n} {s}" for s, n in figures["findings"].items() if n)
    count = sum(figures["findings"].values())
    about = "" if figures["tokens_exact"] else "about "
    files = f"{figures['files']} file{'s' * (figures['files'] != 1)}: {verdicts}"
    findings = f"{count} finding{'s' * (count != 1)}" + (f" ({severities})" if count else "")
    lost = (
        f"; {about}{figures['tokens_lost']:,} tokens behind them are not shared"
        if figures["tokens_lost"]
        else ""
    )
    known = "".join(
        f"; {figures[key]} {words}"
        for key, words in (
            ("suppressed", "allowed"),
            ("baselined", "in the baseline"),
            ("ignored", "ignored by the configuration"),
        )
        if figures[key]
    )
    return f"{files}; {findings}{lost}{known}; block size {report.block_size}"
