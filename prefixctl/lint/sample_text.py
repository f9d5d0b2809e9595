"""What sampling found, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prefixctl.core.findings import Severity
from prefixctl.lint.sample import Agreement, Sample
from prefixctl.lint.sample_files import FileSample, SampleReport

SCHEMA = 1
_SEVERITIES = {
    Agreement.MISSED: Severity.ERROR,
    Agreement.CLAIMED: Severity.WARNING,
    Agreement.UNALIGNED: Severity.WARNING,
    Agreement.FAILED: Severity.WARNING,
}


def reaches(report: SampleReport, threshold: Severity | None) -> bool:
    """Whether a disagreement is at least as bad as the threshold. What lint missed is an error."""
    found = [_SEVERITIES[s.sample.agreement] for s in report.samples
             if s.sample.agreement in _SEVERITIES]  # fmt: skip
    return threshold is not None and any(s >= threshold for s in found)


def to_text(report: SampleReport) -> str:
    """The report as lines of text without a final line end."""
    lines = [line for s in report.samples for line in _file(s, exact=report.exact)]
    lines += [f"{path}: skipped: {why}" for path, why in report.skipped.items()]
    lines += [f"{path}: error: {why}" for path, why in report.unreadable.items()]
    return "\n".join([*lines, _summary(report)])


def to_json(report: SampleReport) -> dict[str, Any]:
    """The report as one JSON document."""
    return {
        "schema": SCHEMA,
        "samples": [_value(s) for s in report.samples],
        "skipped": [{"path": p, "reason": r} for p, r in report.skipped.items()],
        "unreadable": [{"path": p, "reason": r} for p, r in report.unreadable.items()],
        "summary": {a.value: report.count(a) for a in Agreement},
    }


def _file(found: FileSample, *, exact: bool) -> Iterator[str]:
    place, sample = found.location, found.sample
    where = f"{place.path}:{place.line}:{place.column}"
    part = _at(sample.first_difference_tokens, sample.first_difference_chars, exact=exact)
    expected = _at(sample.static_end_tokens, sample.static_end_chars, exact=exact)
    who = ", ".join(f"`{v}`" for v in sample.variables)
    by = f" by {who}" if who else ""
    match sample.agreement:
        case Agreement.AGREES:
            told = f"the renders part {part}{by}" if part else "the renders are equal"
            yield f"{where}: agrees: {told}, as lint says"
        case Agreement.MISSED:
            lint = f"lint expects that {expected}" if expected else "lint expects no change"
            yield f"{where}: missed: the renders part {part}{by}; {lint}"
            yield from _excerpts(sample)
            yield from _advice(sample, found.match)
        case Agreement.CLAIMED:
            told = f"the renders part only {part}{by}" if part else "the renders are equal"
            yield f"{where}: claimed wrongly: lint expects a change {expected}, but {told}"
            yield from _excerpts(sample)
            if not part:
                yield "  advice: the values given may not differ where it matters; check --values"
        case Agreement.UNALIGNED:
            yield f"{where}: not comparable: the text that lint expects is not in the renders"
        case Agreement.FAILED:
            failure = sample.failure
            yield f"{where}: not rendered: {failure.message if failure else 'it gave no text'}"
            yield "  advice: give the values that it needs with --values FILE"
    if sample.held:
        yield f"  held constant: {', '.join(sample.held)}"


def _at(tokens: int | None, chars: int | None, *, exact: bool) -> str:
    if chars is None:
        return ""
    if exact and tokens is not None:
        return f"at token {tokens:,} (character {chars:,})"
    return f"at character {chars:,}"


def _excerpts(sample: Sample) -> Iterator[str]:
    for number, text in enumerate(sample.excerpts, 1):
        yield f"  render {number}: {text!r}"


def _advice(sample: Sample, path: str) -> Iterator[str]:
    if sample.variables:
        name = sample.variables[0]
        yield (
            f"  advice: declare how often `{name}` changes, in prefixctl.yaml: "
            f"lint: {{paths: [{{match: {path}, variables: {{{name}: request}}}}]}}"
        )


def _summary(report: SampleReport) -> str:
    words = {
        Agreement.AGREES: "agree",
        Agreement.MISSED: "missed",
        Agreement.CLAIMED: "claimed wrongly",
        Agreement.UNALIGNED: "not comparable",
        Agreement.FAILED: "not rendered",
    }
    counts = [f"{n} {word}" for a, word in words.items() if (n := report.count(a))]
    total = len(report.samples)
    skipped = f"; {len(report.skipped)} skipped" if report.skipped else ""
    return f"{total} template{'s' * (total != 1)} sampled: {', '.join(counts)}{skipped}"


def _value(found: FileSample) -> dict[str, Any]:
    sample, failure = found.sample, found.sample.failure
    return {
        "path": found.location.path,
        "line": found.location.line,
        "column": found.location.column,
        "agreement": sample.agreement.value,
        "first_difference_tokens": sample.first_difference_tokens,
        "first_difference_chars": sample.first_difference_chars,
        "static_end_tokens": sample.static_end_tokens,
        "static_end_chars": sample.static_end_chars,
        "excerpts": list(sample.excerpts),
        "variables": list(sample.variables),
        "held": list(sample.held),
        "failure": None if failure is None else failure.message,
    }
