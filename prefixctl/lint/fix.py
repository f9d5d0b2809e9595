"""Fixes. A safe one touches no word; an unsafe one may move a line that prints a value.

Every fix is tried on a copy first and linted again. It is kept only if its finding is gone, no new
one came up, the words are still there and no more tokens stand behind the shared prefix.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from prefixctl.core.encoding import UndecodableError
from prefixctl.core.findings import Finding, Location, Verdict
from prefixctl.core.prompt import PROMPT_FILE
from prefixctl.lint.find import Found
from prefixctl.lint.move import moved
from prefixctl.lint.raw import RawFile, raw_file
from prefixctl.lint.report import FileReport
from prefixctl.lint.rules import pfx501_unbumped
from prefixctl.lint.rules.pfx304_white_space import SEVERAL_ENDS, blank_lines
from prefixctl.lint.run import Setup, file_bytes, lint_file
from prefixctl.lint.source import UnreadableError

MAX_FIXES = 100
_UNBUMPED = pfx501_unbumped.RULE.id
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_SORT = re.compile(r",?\s*sort_keys=true")
_BINDING = re.compile(
    r"\{%[-+]?\s*(?:for|set)\s+(?P<names>[\w,\s]+?)\s*(?:\bin\b|=)(?P<of>.*?)%\}", re.DOTALL
)
_DUMP = re.compile(r"(?P<head>\|\s*tojson\b)(?:\s*\((?P<given>(?:[^()]|\([^()]*\))*)\))?(?!\s*\()")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFile:
    """A file with its fixes.

    Attributes:
        path: The file.
        before: Its content.
        after: Its content with the fixes.
        rules: The rule of each fix, in order.
    """

    path: str
    before: RawFile
    after: RawFile
    rules: tuple[str, ...]

    @property
    def diff(self) -> str:
        """What changes, as a unified diff; line ends are shown where only they change."""
        old, new = self.before.lines, self.after.lines
        if [line.rstrip("\r\n") for line in old] == [line.rstrip("\r\n") for line in new]:
            old, new = ([repr(line)[1:-1] for line in lines] for lines in (old, new))
        made = difflib.unified_diff(
            _shown(self.before.mark, old), _shown(self.after.mark, new), self.path, self.path
        )
        return "\n".join(line.rstrip("\r\n") for line in made)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fix:
    """How a rule is fixed, whether that is safe, and in which formats it can be; None for all."""

    change: Callable[[RawFile, Finding, str], Iterator[RawFile]]
    safe: bool = True
    formats: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """The safe fix of one finding, not applied.

    Attributes:
        before: The file.
        after: The file with this fix alone.
    """

    before: RawFile
    after: RawFile


Relint = Callable[[RawFile], FileReport | None]
"""Lints a file as if it had that content."""


def fix_file(file: Found, setup: Setup, *, unsafe: bool = False) -> tuple[FixedFile, ...]:
    """The fixes of one file, or of the sections of a governed prompt. Writes nothing.

    A prompt's prompt.yaml is left to its author; a fix in a section asks for a bump.

    Args:
        file: The file.
        setup: As for lint.
        unsafe: Whether lines may be moved.
    """
    fixed = []
    for before, relint in _parts(file, setup):
        one = _fixed(before, relint, unsafe=unsafe)
        if one is not None:
            fixed.append(one)
    return tuple(fixed)


def propose_fixes(file: Found, setup: Setup) -> dict[tuple[str, Location], Proposed]:
    """The safe fix of every finding that has one, by its rule and place; each is for itself."""
    made: dict[tuple[str, Location], Proposed] = {}
    for before, relint in _parts(file, setup):
        report = relint(before)
        for finding in report.findings if report else ():
            step = report and _try(finding, relint, before, report, unsafe=False)
            if step:
                made[finding.rule, finding.location] = Proposed(before=before, after=step[0])
    return made


def _parts(file: Found, setup: Setup) -> Iterator[tuple[RawFile, Relint]]:
    """The files that may be fixed, each with what lints it anew in its place."""
    if not file.governed:
        paths = {file.path: ""}
    else:
        report = lint_file(file, setup)
        found = {Path(f.location.path) for f in (report.findings if report else ())}
        paths = {p: p.relative_to(file.path).as_posix() for p in sorted(found)
                 if p.is_relative_to(file.path) and p.name != PROMPT_FILE}  # fmt: skip
    for path, name in paths.items():
        try:
            before = raw_file(file_bytes(path), str(path))
        except (UnreadableError, UndecodableError):
            continue
        yield before, _relint(file, setup, name)


def _relint(file: Found, setup: Setup, name: str) -> Relint:
    def relint(raw: RawFile) -> FileReport | None:
        try:
            if name:
                return lint_file(file, setup, overlay={name: raw.data})
            return lint_file(file, setup, data=raw.data)
        except UnreadableError:
            return None

    return relint


def _fixed(before: RawFile, relint: Relint, *, unsafe: bool) -> FixedFile | None:
    now, report = before, relint(before)
    rules: list[str] = []
    while report is not None and len(rules) < MAX_FIXES:
        step = _step(relint, now, report, unsafe=unsafe)
        if step is None:
            break
        now, report, rule = step
        rules.append(rule)
    if not rules:
        return None
    return FixedFile(path=before.path, before=before, after=now, rules=tuple(rules))


def _step(
    relint: Relint, raw: RawFile, report: FileReport, *, unsafe: bool
) -> tuple[RawFile, FileReport, str] | None:
    """The first fix that holds, with the report that proves it."""
    for finding in report.findings:
        step = _try(finding, relint, raw, report, unsafe=unsafe)
        if step is not None:
            return (*step, finding.rule)
    return None


def _try(
    finding: Finding, relint: Relint, raw: RawFile, report: FileReport, *, unsafe: bool
) -> tuple[RawFile, FileReport] | None:
    """The fix of one finding, if one holds."""
    fix = _FIXES.get(finding.rule)
    if fix is None or finding.location.path != raw.path:
        return None
    if not (unsafe or fix.safe) or (fix.formats is not None and report.format not in fix.formats):
        return None
    for changed in fix.change(raw, finding, report.format):
        after = relint(changed)
        if after is not None and _holds(raw, changed, report, after, finding):
            return changed, after
    return None


def _holds(
    raw: RawFile, changed: RawFile, report: FileReport, after: FileReport, finding: Finding
) -> bool:
    had, has = _findings(report), _findings(after)
    key = (finding.rule, finding.variable)
    return (
        after.verdict is not Verdict.ERROR
        and after.format == report.format
        and has[key] < had[key]
        and has <= had
        and _words(raw) == _words(changed)
        and after.total_tokens - after.prefix_tokens <= report.total_tokens - report.prefix_tokens
    )


def _findings(report: FileReport) -> Counter[tuple[str, str | None]]:
    """What is found; that a changed prompt needs a bump goes without saying."""
    return Counter((f.rule, f.variable) for f in report.findings if f.rule != _UNBUMPED)


def _words(raw: RawFile) -> Counter[str]:
    """The words that are not part of an expression, and the expressions without their sorting."""
    tags = [re.sub(r"\(\s*\)", "", _SORT.sub("", t)) for t in _TAG.findall(raw.text)]
    return Counter([*_TAG.sub(" ", raw.text).split(), *("".join(t.split()) for t in tags)])


def _without_mark(raw: RawFile, _: Finding, __: str) -> Iterator[RawFile]:
    yield replace(raw, mark=b"")


def _tidied(raw: RawFile, finding: Finding, _: str) -> Iterator[RawFile]:
    """One line end throughout, and no blank lines at the ends if the finding is about those."""
    made = replace(raw, text=re.sub(r"\r\n|\r|\n", raw.newline, raw.text))
    if SEVERAL_ENDS not in finding.message:
        before, behind = blank_lines(made.lines)
        made = replace(made, text="".join(made.lines[before : len(made.lines) - behind]))
    yield made


def _sorted(raw: RawFile, finding: Finding, _: str) -> Iterator[RawFile]:
    """Sorted keys where the finding points to, then wherever the same value is dumped."""
    starts = [0]
    for line in raw.lines:
        starts.append(starts[-1] + len(line))
    at = starts[min(finding.location.line, len(starts)) - 1] + finding.location.column - 1
    root = _named(_aliases(raw.text, (finding.variable or "").split(".")[0]))
    here = next((m for m in _TAG.finditer(raw.text) if m.end() > at), None)
    if here is not None:
        made = raw.text[: here.start()] + _sorting(here.group()) + raw.text[here.end() :]
        yield replace(raw, text=made)

    def everywhere(tag: re.Match[str]) -> str:
        return _sorting(tag.group()) if root.search(tag.group()) else tag.group()

    yield replace(raw, text=_TAG.sub(everywhere, raw.text))


def _aliases(text: str, name: str) -> set[str]:
    """The name of a value and the names of what loops and assignments take from it."""
    names, before = {name}, 0
    while len(names) > before:
        before = len(names)
        for bound in _BINDING.finditer(text):
            if _named(names).search(bound["of"]):
                names.update(re.findall(r"\w+", bound["names"]))
    return names


def _named(names: set[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")


def _sorting(tag: str) -> str:
    def sorting(dump: re.Match[str]) -> str:
        given = (dump["given"] or "").strip()
        if "sort_keys" in given:
            return dump.group()
        return f"{dump['head']}({given}{', ' if given else ''}sort_keys=true)"

    return _DUMP.sub(sorting, tag)


def _shown(mark: bytes, lines: list[str]) -> list[str]:
    return ["<byte order mark>" + line if mark and i == 0 else line for i, line in enumerate(lines)]


_MOVE = _Fix(change=moved, safe=False)
_FIXES = {
    # The filter of chat templates takes sort_keys. Jinja2's own fails on it, and sorts anyway.
    "PFX201": _Fix(change=_sorted, formats=frozenset(["chat-template"])),
    "PFX303": _Fix(change=_without_mark),
    "PFX304": _Fix(change=_tidied),
    **dict.fromkeys(["PFX101", "PFX102", "PFX103", "PFX104", "PFX105", "PFX106", "PFX107"], _MOVE),
}
