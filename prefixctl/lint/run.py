"""Lint over files: read, measure, check, report. One broken file never stops the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from prefixctl.core.findings import Confidence, Finding, Location, Severity, Verdict
from prefixctl.core.prompt import PROMPT_FILE
from prefixctl.errors import InputError, NothingToDoError
from prefixctl.lint.assemble import joined, report_of
from prefixctl.lint.cache import Cache, Loads
from prefixctl.lint.chat.confirm import without_refuted
from prefixctl.lint.declare import with_declared
from prefixctl.lint.delimiters import loading, with_delimiters
from prefixctl.lint.document import Document
from prefixctl.lint.evaluate.state import Loader
from prefixctl.lint.evaluate.whole import read_document
from prefixctl.lint.find import Found
from prefixctl.lint.measure import Measure
from prefixctl.lint.per_path import PerPath
from prefixctl.lint.private import masked
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
from prefixctl.sources.files import real_path
from prefixctl.yamlfile import read_bytes

MAX_FILE_BYTES = 8 * 1024 * 1024
_MEND = "mend it, or leave the file out with lint.exclude in prefixctl.yaml: it was not checked"


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
        per_path: What is different for some paths.
        cache: Reports of earlier runs. A governed prompt is never taken from it: what its report
            says also depends on the lock and on the target's files.
    """

    counter: TokenCounter
    block_size: int = 16
    block_size_known: bool = False
    root: Path = Path()
    unbumped: Unbumped | None = None
    aligned: Aligned | None = None
    per_path: PerPath = field(default_factory=PerPath)
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


def lint_file(
    file: Found,
    setup: Setup,
    *,
    data: bytes | None = None,
    overlay: Mapping[str, bytes] | None = None,
) -> FileReport | None:
    """Lint one file; None if it holds no prompt and nobody named it.

    Args:
        file: The file.
        setup: How.
        data: What to take for its content; read if omitted.
        overlay: The same for files of a governed prompt, by their names in its folder.
    """
    path = str(file.path)
    try:
        if file.governed:
            return _lint_governed(file.path, setup, overlay)
        data = _checked(data) if data is not None else file_bytes(file.path)
        loader = Loads(_loader(file.path.parent, setup.root))
        if setup.cache is not None and (kept := setup.cache.find(path, file.named, data, loader)):
            return kept.report
        report = _lint_plain(file, data, setup, loader)
    except BrokenPromptError as exc:
        return _unreadable(exc.path, exc.cause, (overlay or {}).get(Path(exc.path).name))
    except UnreadableError as exc:
        return _unreadable(path, exc, data)
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
        value = read_document(document)
        if document.prompt is None:
            value = with_declared(value, document.parameters)
        measure.read(value)
    except RecursionError as exc:
        raise UnreadableError("nested too deeply") from exc
    prompt, behaviour = document.prompt, None
    if document.chat and len(document.blocks) == 1:
        measure.exposures, behaviour = without_refuted(
            measure.exposures, document.blocks[0].text, setup.block_size
        )
    reading = Reading(
        document=document,
        measure=measure,
        block_size=setup.block_size,
        block_size_known=setup.block_size_known,
        alignment=setup.aligned(prompt) if prompt and setup.aligned else None,
        unbumped=setup.unbumped,
        behaviour=behaviour,
    )
    found = [f for rule in all_rules() for f in rule.check(rule, reading)]
    found.sort(key=in_file_order)
    return report_of(reading, tuple(found))


def documents_of(
    file: Found, setup: Setup, *, data: bytes | None = None, loader: Loader | None = None
) -> list[Document] | None:
    """The prompts in a file, with the scopes that the configuration declares; None if it has none.

    Raises:
        UnreadableError: If it cannot be read.
        BrokenPromptError: If it is a governed prompt that cannot be read.
    """
    if file.governed:
        return [read_governed(file.path)]
    data = file_bytes(file.path) if data is None else data
    loader = loader or _loader(file.path.parent, setup.root)
    wishes = setup.per_path.of(file.path)
    source = with_delimiters(decode(data, str(file.path)), wishes.delimiters)
    loader = loading(loader, wishes.delimiters)
    documents, declared = read_file(source, named=file.named, loader=loader), wishes.variables
    if documents is None or not declared:
        return documents
    return [replace(d, parameters={**declared, **d.parameters}) for d in documents]


def _lint_plain(file: Found, data: bytes, setup: Setup, loader: Loader) -> FileReport | None:
    path = str(file.path)
    documents = documents_of(file, setup, data=data, loader=loader)
    if documents is None:
        return None
    report = joined([lint_document(d, setup) for d in documents])
    blocks = [b for d in documents for b in d.blocks]
    if len(blocks) == 1 and file.path.suffix.lower() in TEMPLATE_SUFFIXES | TEXT_SUFFIXES:
        raw = raw_file(data, path, standalone=not documents[0].chat)
        report = _with_raw(report, [raw])
    return setup.per_path.of(file.path).applied(suppress(report, documents))


def _lint_governed(
    folder: Path, setup: Setup, overlay: Mapping[str, bytes] | None = None
) -> FileReport:
    document = read_governed(folder, overlay)
    report = lint_document(document, setup)
    prompt = document.prompt
    if prompt is None:
        return report
    names = dict.fromkeys(s.file for s in prompt.sections)
    raws = [raw_file(prompt.files[name], str(folder / name)) for name in names]
    top = decode(prompt.files[PROMPT_FILE], str(folder / PROMPT_FILE))
    made = suppress(_with_raw(report, raws), [document], [top])
    return setup.per_path.of(folder / PROMPT_FILE).applied(made)


def _with_raw(report: FileReport, files: Sequence[RawFile]) -> FileReport:
    """The report with what rules find in the bytes of its files."""
    found = [f for raw in files for rule in all_rules() for f in rule.check_file(rule, raw)]
    return replace(report, findings=tuple(sorted((*report.findings, *found), key=in_file_order)))


def file_bytes(path: Path) -> bytes:
    """The bytes of a file to lint.

    Raises:
        UnreadableError: If it is missing, no regular file, too large, or cannot be read.
    """
    try:
        return read_bytes(path, limit=MAX_FILE_BYTES)
    except InputError as exc:
        raise UnreadableError(exc.message) from exc


def _checked(data: bytes) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableError(f"larger than {MAX_FILE_BYTES:,} bytes")
    return data


def _loader(folder: Path, root: Path) -> Loader:
    """Finds included templates in a file's folder and the folders above it, inside the root."""

    def load(name: str) -> str | None:
        top = real_path(root)
        start = real_path(folder)
        for place in (start, *start.parents):
            if not place.is_relative_to(top):
                return None
            path = real_path(place / name)
            if path.is_relative_to(top) and path.is_file():
                try:
                    return decode(file_bytes(path), str(path)).text
                except UnreadableError:
                    return None
        return None

    return load


def _unreadable(path: str, exc: UnreadableError, data: bytes | None) -> FileReport:
    """The report of a file that could not be read, with the line that is to blame if there is one.

    Args:
        path: The file.
        exc: What is wrong.
        data: Its content if it is at hand.
    """
    place = Location(path=path, line=exc.line, column=exc.column)
    finding = Finding(
        rule=pfx000_unreadable.RULE.id,
        name=pfx000_unreadable.RULE.name,
        severity=Severity.ERROR,
        confidence=Confidence.HIGH,
        location=place,
        message=exc.message,
        advice=exc.advice or _MEND,
    )
    return FileReport(
        path=path,
        format="unreadable",
        verdict=Verdict.ERROR,
        findings=(finding,),
        lines={place: _line(path, exc.line, data)},
    )


def _line(path: str, number: int, data: bytes | None) -> str:
    """A line of a file, or nothing if it has no text."""
    try:
        return masked(decode(file_bytes(Path(path)) if data is None else data, path).line(number))
    except UnreadableError:
        return ""
