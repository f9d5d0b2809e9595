"""Comments that allow a finding: ``prefixctl: allow PFX101 reason``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from prefixctl.core.findings import Finding, Location, Severity, Suppressed
from prefixctl.lint.document import Document
from prefixctl.lint.families import all_ids, prompt_ids
from prefixctl.lint.private import masked
from prefixctl.lint.readers.text import TEMPLATE_SUFFIXES, TEXT_SUFFIXES
from prefixctl.lint.report import FileReport
from prefixctl.lint.rules import pfx000_unreadable, pfx001_suppression
from prefixctl.lint.source import Source

TOP_LINES = 10
_MARK = "prefixctl:"
_JINJA = re.compile(r"\{#[-+]?\s*prefixctl:\s*(?P<body>allow.{0,500}?)\s*[-+]?#\}", re.DOTALL)
_LINE = re.compile(
    r"(?:^|(?<=\s))(?:#|//|<!--)[ \t]*prefixctl:[ \t]*(?P<body>allow[^\n]*?)[ \t]*(?:-->)?[ \t]*$",
    re.MULTILINE,
)
_WORDS = re.compile(r"allow(?P<file>-file)?\b[:\s]*(?P<rest>.*)", re.DOTALL)
_ID = re.compile(r"PFX\d{1,4}", re.IGNORECASE)
_BETWEEN = " \t\n,;:-–—"
_UNREADABLE = pfx000_unreadable.RULE.id


@dataclass(slots=True, kw_only=True)
class Suppression:
    """One comment, and what it was good for.

    Attributes:
        rules: Ids of rules; a word that names none stays as it was written.
        reason: Why.
        place: Where the comment begins.
        lines: The lines that it holds for; None for the whole file.
        used: The rules that it suppressed a finding of.
    """

    rules: tuple[str, ...]
    reason: str
    place: Location
    lines: frozenset[int] | None
    used: set[str] = field(default_factory=set)

    def takes(self, finding: Finding, first_line: int) -> bool:
        """Whether it allows a finding; remembers it.

        Args:
            finding: A finding in the same file.
            first_line: Where the string that holds the finding begins; the finding's own line if
                the whole file is the prompt.
        """
        if finding.rule == _UNREADABLE or finding.rule not in self.rules:
            return False
        around = {finding.location.line, first_line, max(first_line - 1, 1)}
        if first_line == finding.location.line:
            around = {first_line}
        if self.lines is not None and not self.lines & around:
            return False
        self.used.add(finding.rule)
        return True


def suppress(
    report: FileReport, documents: Sequence[Document], others: Sequence[Source] = ()
) -> FileReport:
    """The report without the findings that comments allow, and with those that comments cause.

    Args:
        report: Of one file, or of one governed prompt.
        documents: What it is the report of.
        others: Further files that its findings may point to.
    """
    read = (b.origin.source for d in documents for b in d.blocks)
    sources = {source.path: source for source in (*read, *others)}
    return suppress_in(report, sources, lambda: _starts(documents), prompt_ids())


def suppress_in(
    report: FileReport,
    sources: Mapping[str, Source],
    starts: Callable[[], Mapping[str, Sequence[int]]],
    family: frozenset[str],
) -> FileReport:
    """As `suppress`, for any kind of file.

    Args:
        report: Of the files.
        sources: The files by path.
        starts: Makes the lines on which what holds a finding begins, by path: a comment above the
            beginning is as good as one on the finding's line.
        family: Ids of the rules that were run. What a comment says of others is left to their run.
    """
    found = [s for source in sources.values() for s in suppressions(source)]
    if not found:
        return report
    begins = starts()
    kept: list[Finding] = []
    allowed: list[Suppressed] = []
    for finding in report.findings:
        here = [s for s in found if s.place.path == finding.location.path]
        first_line = _first_line(begins.get(finding.location.path, ()), finding.location.line)
        takers = [s for s in here if s.takes(finding, first_line)]
        if takers:
            allowed.append(Suppressed(finding=finding, reason=takers[0].reason))
        else:
            kept.append(finding)
    raised = [f for s in found for f in _faults(s, family)]
    lines = {f.location: masked(sources[f.location.path].line(f.location.line)) for f in raised}
    return replace(
        report,
        findings=tuple(sorted((*kept, *raised), key=in_file_order)),
        suppressed=tuple(allowed),
        lines={**lines, **report.lines},
    )


def in_file_order(finding: Finding) -> tuple[str, int, int, str]:
    """What findings are sorted by."""
    place = finding.location
    return place.path, place.line, place.column, finding.rule


def suppressions(source: Source) -> list[Suppression]:
    """The suppression comments of a file, in its order."""
    if _MARK not in source.text:
        return []
    template = PurePath(source.path).suffix.lower() in TEMPLATE_SUFFIXES
    patterns = (_JINJA,) if template else (_JINJA, _LINE)
    matches = sorted((m for p in patterns for m in p.finditer(source.text)), key=re.Match.start)
    spans = [_span(source, m) for m in matches]
    lonely = {line for span, alone in spans if alone for line in span}
    return [
        _suppression(source, match, span, alone, lonely)
        for match, (span, alone) in zip(matches, spans, strict=True)
    ]


def _span(source: Source, match: re.Match[str]) -> tuple[range, bool]:
    """The lines of a comment, and whether nothing else stands on them."""
    first, column = source.position(match.start())
    last, end = source.position(match.end())
    before, behind = source.line(first)[: column - 1], source.line(last)[end - 1 :]
    return range(first, last + 1), not (before.strip() or behind.strip())


def _suppression(
    source: Source, match: re.Match[str], span: range, alone: bool, lonely: set[int]
) -> Suppression:
    words = _WORDS.match(match["body"])
    whole_file = bool(words and words["file"])
    rules, reason = _parsed(words["rest"] if words else "")
    line, column = source.position(match.start())
    covered = set(span)
    if alone:
        following = span.stop
        while following in lonely:
            following += 1
        covered.add(following)
    at_top = whole_file and line <= TOP_LINES
    return Suppression(
        rules=rules,
        reason=reason,
        place=Location(path=source.path, line=line, column=column),
        lines=None if at_top else frozenset() if whole_file else frozenset(covered),
    )


def _parsed(text: str) -> tuple[tuple[str, ...], str]:
    """The rules that a comment names, and the words behind them."""
    rules: list[str] = []
    rest = text.lstrip(_BETWEEN)
    while rest:
        word = re.split(r"[\s,;:]", rest, maxsplit=1)[0]
        known = all_ids().get(word.lower())
        if known is None and not _ID.fullmatch(word):
            break
        rules.append(known or word.upper())
        rest = rest[len(word) :].lstrip(_BETWEEN)
    return tuple(dict.fromkeys(rules)), " ".join(rest.split())


def _starts(documents: Sequence[Document]) -> dict[str, list[int]]:
    """The lines on which the strings of a file begin, where a file is more than its prompt."""
    made: dict[str, list[int]] = {}
    for block in (b for d in documents for b in d.blocks):
        source = block.origin.source
        if PurePath(source.path).suffix.lower() not in TEMPLATE_SUFFIXES | TEXT_SUFFIXES:
            made.setdefault(source.path, []).append(source.position(block.origin.start)[0])
    return made


def _first_line(starts: Sequence[int], line: int) -> int:
    return max((s for s in starts if s <= line), default=line)


def _faults(suppression: Suppression, family: frozenset[str]) -> Iterator[Finding]:
    if not suppression.rules:
        yield _fault(
            suppression,
            "allow",
            "`allow` names no rule, so it allows nothing",
            "write the rule's id or name behind it: prefixctl: allow PFX101 reason",
        )
        return
    known = set(all_ids().values())
    for rule in suppression.rules:
        if rule in known - family:
            continue
        if rule not in known:
            text, advice = f"there is no rule `{rule}` to allow", "`prefixctl rule` lists all rules"
        elif suppression.lines == frozenset():
            text = f"`{rule}` is allowed for the file, but not in its first {TOP_LINES} lines"
            advice = "move the comment to the top, or write `allow` on the line of the finding"
        elif rule not in suppression.used:
            text = f"`{rule}` is allowed here, but finds nothing here"
            advice = "remove the comment, so that it does not hide the next finding"
        else:
            continue
        yield _fault(suppression, rule, text, advice)
    if suppression.used and not suppression.reason:
        rule = suppression.rules[0]
        yield _fault(
            suppression,
            rule,
            f"`{rule}` is allowed without a reason",
            "say behind the rule why the finding may stay, for the next reader",
            Severity.INFO,
        )


def _fault(
    suppression: Suppression,
    variable: str,
    message: str,
    advice: str,
    severity: Severity = Severity.WARNING,
) -> Finding:
    rule = pfx001_suppression.RULE
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=severity,
        confidence=rule.confidence,
        location=suppression.place,
        message=message,
        advice=advice,
        variable=variable,
    )
