"""Lint over files: read, measure, check, report. One broken file never stops the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixctl.core.findings import Confidence, Finding, Location, Severity, Verdict
from prefixctl.errors import NothingToDoError
from prefixctl.lint.document import Document
from prefixctl.lint.evaluate.state import Loader
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.evaluate.whole import read_document
from prefixctl.lint.find import Found
from prefixctl.lint.measure import Exposure, Measure
from prefixctl.lint.readers import messages
from prefixctl.lint.readers.governed import BrokenPromptError, read_governed
from prefixctl.lint.readers.text import TEMPLATE_SUFFIXES, TEXT_SUFFIXES, read_text
from prefixctl.lint.report import FileReport, PrintedValue
from prefixctl.lint.rule import Aligned, Reading, Unbumped, place_of, shown
from prefixctl.lint.rules import all_rules, pfx000_unreadable
from prefixctl.lint.source import Source, UnreadableError, decode
from prefixctl.lint.tokens import TokenCounter
from prefixctl.lint.verdict import verdict_of, worst

MAX_FILE_BYTES = 8 * 1024 * 1024
_UNREAD_SUFFIXES = frozenset(
    [".py", ".go", ".js", ".ts", ".tsx", ".java", ".rs", ".c", ".cc", ".cpp", ".h", ".rb", ".php",
     ".cs", ".kt", ".swift", ".baml", ".toml", ".ini", ".sh", ".html", ".css", ".ipynb", ".csv"]
)  # fmt: skip
_FENCED = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_SILENT_KINDS = frozenset([CauseKind.CONVERSATION, CauseKind.SYSTEM, CauseKind.POSITION])


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How to lint.

    Attributes:
        counter: Counts tokens.
        block_size: Tokens in a block.
        block_size_known: Whether a target or the configuration says so.
        root: No include leaves this folder.
        unbumped: See `prefixctl.lint.rule.Unbumped`; PFX501 is silent without it.
        aligned: See `prefixctl.lint.rule.Aligned`.
    """

    counter: TokenCounter
    block_size: int = 16
    block_size_known: bool = False
    root: Path = Path()
    unbumped: Unbumped | None = None
    aligned: Aligned | None = None


def lint_files(files: Sequence[Found], setup: Setup) -> tuple[FileReport, ...]:
    """Lint files. One that is passed over because it holds no prompt has no report.

    Raises:
        NothingToDoError: If no file holds a prompt.
    """
    reports = [report for file in files if (report := _lint_file(file, setup)) is not None]
    if not reports:
        raise NothingToDoError(
            "nothing to lint",
            path=", ".join(str(f.path) for f in files[:3]),
            hint="no file holds a template, a message list or a text with placeholders",
        )
    return tuple(reports)


def lint_document(document: Document, setup: Setup) -> FileReport:
    """Lint one document.

    Raises:
        UnreadableError: If a template is nested too deeply or takes too long to read.
    """
    measure = Measure(setup.counter)
    try:
        measure.read(read_document(document))
    except RecursionError as exc:
        raise UnreadableError("nested too deeply") from exc
    prompt = document.prompt
    reading = Reading(
        document=document,
        measure=measure,
        block_size=setup.block_size,
        block_size_known=setup.block_size_known,
        alignment=setup.aligned(prompt) if prompt and setup.aligned else None,
        unbumped=setup.unbumped,
    )
    found = [f for rule in all_rules() for f in rule.check(rule, reading)]
    found.sort(key=lambda f: (f.location.path, f.location.line, f.location.column, f.rule))
    return _report(reading, tuple(found))


def _lint_file(file: Found, setup: Setup) -> FileReport | None:
    path = str(file.path)
    try:
        documents = _read(file, setup)
        if documents is None:
            return None
        return _joined([lint_document(d, setup) for d in documents])
    except BrokenPromptError as exc:
        return _unreadable(exc.path, exc.cause)
    except UnreadableError as exc:
        return _unreadable(path, exc)


def _read(file: Found, setup: Setup) -> list[Document] | None:
    """The documents of a file; None if it holds no prompt and nobody named it."""
    if file.governed:
        return [read_governed(file.path)]
    source = _source(file.path)
    suffix = file.path.suffix.lower()
    loader = _loader(file.path.parent, setup.root)
    if suffix in messages.SUFFIXES:
        try:
            documents = messages.read_messages(source, loader=loader)
        except UnreadableError:
            if file.named or _speaks_of_prompts(source.text):
                raise
            return None
        if not documents and file.named:
            raise UnreadableError("holds no message list and no chat template")
        return documents or None
    if suffix in _UNREAD_SUFFIXES:
        raise UnreadableError(
            f"prompts inside {suffix} files are not read", advice="keep the prompt in its own file"
        )
    if not file.named and suffix == ".md" and _only_in_examples(source.text):
        return None
    document = read_text(source, template=suffix in TEMPLATE_SUFFIXES, loader=loader)
    if document.format == "text" and suffix in TEXT_SUFFIXES - {".prompt", ".prompty"}:
        return [document] if file.named or _is_prompt_folder(file.path.parent) else None
    return [document]


def _only_in_examples(text: str) -> bool:
    """Whether a text has braces in code examples alone, as documentation has."""
    return "{" in text and "{" not in _FENCED.sub("", text)


def _speaks_of_prompts(text: str) -> bool:
    return '"chat_template"' in text or ('"role"' in text and '"content"' in text)


def _is_prompt_folder(folder: Path) -> bool:
    """Whether a folder's name says that its plain texts are prompts."""
    return any(word in folder.absolute().name.lower() for word in ("prompt", "template"))


def _source(path: Path) -> Source:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UnreadableError(f"larger than {MAX_FILE_BYTES:,} bytes")
        return decode(path.read_bytes(), str(path))
    except OSError as exc:
        raise UnreadableError(f"cannot be read: {exc.strerror}") from exc


def _loader(folder: Path, root: Path) -> Loader:
    """Finds included templates in a file's folder and the folders above it, inside the root."""

    def load(name: str) -> str | None:
        top = root.resolve()
        start = folder.resolve()
        for place in (start, *start.parents):
            if not place.is_relative_to(top):
                return None
            path = (place / name).resolve()
            if path.is_relative_to(top) and path.is_file():
                try:
                    return _source(path).text
                except UnreadableError:
                    return None
        return None

    return load


def _report(reading: Reading, findings: tuple[Finding, ...]) -> FileReport:
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
            return block.origin.source.line(place.line)
    return ""


def _joined(reports: list[FileReport]) -> FileReport:
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


def _unreadable(path: str, exc: UnreadableError) -> FileReport:
    finding = Finding(
        rule=pfx000_unreadable.RULE.id,
        name=pfx000_unreadable.RULE.name,
        severity=Severity.ERROR,
        confidence=Confidence.HIGH,
        location=Location(path=path, line=exc.line, column=exc.column),
        message=exc.message,
        advice=exc.advice,
    )
    return FileReport(path=path, format="unreadable", verdict=Verdict.ERROR, findings=(finding,))
