"""From what was read and found to the report of a file."""

from __future__ import annotations

from collections.abc import Sequence

from prefixctl.core.findings import Finding, Location, Verdict
from prefixctl.lint.document import Document
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure
from prefixctl.lint.private import masked
from prefixctl.lint.report import FileReport, PrintedValue
from prefixctl.lint.rule import Reading, place_of, shown
from prefixctl.lint.verdict import verdict_of, worst

_SILENT_KINDS = frozenset([CauseKind.CONVERSATION, CauseKind.SYSTEM, CauseKind.POSITION])


def report_of(reading: Reading, findings: tuple[Finding, ...]) -> FileReport:
    """The report of one document, from what was read and what was found."""
    measure, document = reading.measure, reading.document
    exposures = measure.exposures
    verdicts = [verdict_of(e, reading.block_size) for e in exposures]
    prefix, total = measure.prefix_tokens, measure.total_tokens
    if reading.alignment is not None:
        prefix, total = reading.alignment.shared_tokens, reading.alignment.request_tokens
    lost = [
        e.tokens_behind for e, v in zip(exposures, verdicts, strict=True) if v is not Verdict.OK
    ]
    return FileReport(
        path=document.path,
        format=document.format,
        verdict=worst(verdicts),
        prefix_tokens=prefix,
        total_tokens=total,
        full_blocks=prefix // reading.block_size,
        tokens_lost=max(lost, default=0),
        tokens_exact=measure.counter.exact,
        findings=findings,
        values=_values(reading),
        lines={f.location: _line(document, f.location) for f in findings},
    )


def _values(reading: Reading) -> tuple[PrintedValue, ...]:
    made: dict[tuple[str, Location], PrintedValue] = {}
    for exposure in reading.measure.exposures:
        cause = exposure.hole.cause
        if exposure.condition or cause.kind in _SILENT_KINDS:
            continue
        place = _printed_at(reading, exposure)
        made.setdefault(
            (shown(exposure), place),
            PrintedValue(
                variable=shown(exposure),
                kind=cause.kind.value,
                volatility=cause.volatility,
                confidence=cause.confidence,
                reason=cause.reason,
                location=place,
            ),
        )
    return tuple(made.values())


def _printed_at(reading: Reading, exposure: Exposure) -> Location:
    site = exposure.hole.site
    if site is None:
        return place_of(reading, exposure)
    return reading.document.blocks[exposure.hole.block].locate(site)


def _line(document: Document, place: Location) -> str:
    for block in document.blocks:
        if block.origin.source.path == place.path:
            return masked(block.origin.source.line(place.line))
    return ""


def joined(reports: Sequence[FileReport]) -> FileReport:
    """One report of a file with several prompts: all findings, the figures of the worst one."""
    if len(reports) == 1:
        return reports[0]
    verdict = worst([r.verdict for r in reports])
    figures = max(reports, key=lambda r: (r.verdict is verdict, r.tokens_lost))
    return FileReport(
        path=figures.path,
        format=figures.format,
        verdict=verdict,
        prefix_tokens=figures.prefix_tokens,
        total_tokens=figures.total_tokens,
        full_blocks=figures.full_blocks,
        tokens_lost=figures.tokens_lost,
        tokens_exact=figures.tokens_exact,
        findings=tuple(f for r in reports for f in r.findings),
        values=tuple(v for r in reports for v in r.values),
        lines={place: line for r in reports for place, line in r.lines.items()},
    )
