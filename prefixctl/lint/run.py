"""Lint over files: read, measure, check, report. One broken file never stops the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prefixctl.core.findings import Confidence, Finding, Location, Severity, Verdict
from prefixctl.core.prompt import PROMPT_FILE
from prefixctl.errors import NothingToDoError
from prefixctl.lint.assemble import joined, report_of
from prefixctl.lint.cache import Cache, Loads
from prefixctl.lint.document import Document
from prefixctl.lint.evaluate.state import Loader
from prefixctl.lint.evaluate.whole import read_document
from prefixctl.lint.find import Found
from prefixctl.lint.measure import Measure
from prefixctl.lint.raw import RawFile, raw_file
from prefixctl.lint.readers.any_file import read_file
from prefixctl.lint.readers.governed import BrokenPromptError, read_governed
from prefixctl.lint.readers.text import TEMPLATE_SUFFIXES, TEXT_SUFFIXES
from prefixctl.lint.report import FileReport
from prefixctl.lint.rule import Aligned, Reading, Unbumped
from prefixctl.lint.rules import all_rules, pfx000_unreadable
from prefixctl.lint.source import UnreadableError, decode
from prefixctl.lint.suppress import in_file_order, suppress
from prefixctl.lint.tokens import TokenCounter

MAX_FILE_BYTES = 8 * 1024 * 1024


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
        cache: Reports of earlier runs. A governed prompt is never taken from it: what its report
            says also depends on the lock and on the target's files.
    """

    counter: TokenCounter
    block_size: int = 16
    block_size_known: bool = False
    root: Path = Path()
    unbumped: Unbumped | None = None
    aligned: Aligned | None = None
    cache: Cache | None = None


def lint_files(files: Sequence[Found], setup: Setup) -> tuple[FileReport, ...]:
    """Lint files. One that is passed over because it holds no prompt has no report.

    Raises:
        NothingToDoError: If no file holds a prompt.
    """
    reports = [report for file in files if (report := lint_file(file, setup)) is not None]
    if not reports:
        raise NothingToDoError(
            "nothing to lint",
            path=", ".join(str(f.path) for f in files[:3]),
            hint="no file holds a template, a message list or a text with placeholders",
        )
    return tuple(reports)


def lint_file(file: Found, setup: Setup, *, data: bytes | None = None) -> FileReport | None:
    """Lint one file; None if it holds no prompt and nobody named it.

    Args:
        file: The file.
        setup: How.
        data: What to take for its content; read if omitted. No governed prompt has it.
    """
    path = str(file.path)
    try:
        if file.governed:
            return _lint_governed(file.path, setup)
        data = _bytes(file.path) if data is None else data
        loader = Loads(_loader(file.path.parent, setup.root))
        if setup.cache is not None and (kept := setup.cache.find(path, file.named, data, loader)):
            return kept.report
        report = _lint_plain(file, data, setup, loader)
    except BrokenPromptError as exc:
        return _unreadable(exc.path, exc.cause)
    except UnreadableError as exc:
        return _unreadable(path, exc)
    if setup.cache is not None:
        setup.cache.keep(path, file.named, data, loader, report)
    return report


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
    found.sort(key=in_file_order)
    return report_of(reading, tuple(found))


def _lint_plain(file: Found, data: bytes, setup: Setup, loader: Loader) -> FileReport | None:
    path = str(file.path)
    documents = read_file(decode(data, path), named=file.named, loader=loader)
    if documents is None:
        return None
    report = joined([lint_document(d, setup) for d in documents])
    blocks = [b for d in documents for b in d.blocks]
    if len(blocks) == 1 and file.path.suffix.lower() in TEMPLATE_SUFFIXES | TEXT_SUFFIXES:
        raw = raw_file(data, path, standalone=not documents[0].chat)
        report = _with_raw(report, [raw])
    return suppress(report, documents)


def _lint_governed(folder: Path, setup: Setup) -> FileReport:
    document = read_governed(folder)
    report = lint_document(document, setup)
    prompt = document.prompt
    if prompt is None:
        return report
    names = dict.fromkeys(s.file for s in prompt.sections)
    raws = [raw_file(prompt.files[name], str(folder / name)) for name in names]
    top = decode(prompt.files[PROMPT_FILE], str(folder / PROMPT_FILE))
    return suppress(_with_raw(report, raws), [document], [top])


def _with_raw(report: FileReport, files: Sequence[RawFile]) -> FileReport:
    """The report with what rules find in the bytes of its files."""
    found = [f for raw in files for rule in all_rules() for f in rule.check_file(rule, raw)]
    return replace(report, findings=tuple(sorted((*report.findings, *found), key=in_file_order)))


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UnreadableError(f"larger than {MAX_FILE_BYTES:,} bytes")
        return path.read_bytes()
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
                    return decode(_bytes(path), str(path)).text
                except UnreadableError:
                    return None
        return None

    return load


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
