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

from prefixctl.core.findings import Finding, Verdict
from prefixctl.lint.find import Found
from prefixctl.lint.move import moved
from prefixctl.lint.raw import RawFile, raw_file
from prefixctl.lint.report import FileReport
from prefixctl.lint.rules.pfx304_white_space import SEVERAL_ENDS, blank_lines
from prefixctl.lint.run import Setup, lint_file
from prefixctl.lint.source import UnreadableError

MAX_FIXES = 100
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
    """How a rule is fixed, and in which formats that is safe; None for all."""

    change: Callable[[RawFile, Finding, str], Iterator[RawFile]]
    safe_in: frozenset[str] | None = None


def fix_file(file: Found, setup: Setup, *, unsafe: bool = False) -> FixedFile | None:
    """The fixes of one file; None if there are none. Writes nothing.

    Args:
        file: A file that is a prompt as a whole.
        setup: As for lint.
        unsafe: Whether lines may be moved.
    """
    if file.governed:
        return None
    try:
        before = raw_file(file.path.read_bytes(), str(file.path))
    except (OSError, UnicodeDecodeError):
        return None
    now = before
    rules: list[str] = []
    report = lint_file(file, setup, data=now.data)
    while report is not None and len(rules) < MAX_FIXES:
        step = _step(file, setup, now, report, unsafe=unsafe)
        if step is None:
            break
        now, report, rule = step
        rules.append(rule)
    if not rules:
        return None
    return FixedFile(path=str(file.path), before=before, after=now, rules=tuple(rules))


def _step(
    file: Found, setup: Setup, raw: RawFile, report: FileReport, *, unsafe: bool
) -> tuple[RawFile, FileReport, str] | None:
    """The first fix that holds, with the report that proves it."""
    for finding in report.findings:
        fix = _FIXES.get(finding.rule)
        if fix is None or finding.location.path != raw.path:
            continue
        if not (unsafe or fix.safe_in is None or report.format in fix.safe_in):
            continue
        for changed in fix.change(raw, finding, report.format):
            after = _linted(file, setup, changed)
            if after is not None and _holds(raw, changed, report, after, finding):
                return changed, after, finding.rule
    return None


def _linted(file: Found, setup: Setup, raw: RawFile) -> FileReport | None:
    try:
        return lint_file(file, setup, data=raw.data)
    except UnreadableError:
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
    return Counter((f.rule, f.variable) for f in report.findings)


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


_MOVE = _Fix(change=moved, safe_in=frozenset())
_FIXES = {
    # The filter of chat templates takes sort_keys. That of stock Jinja2 does not, and sorts anyway.
    "PFX201": _Fix(change=_sorted, safe_in=frozenset(["chat-template"])),
    "PFX303": _Fix(change=_without_mark),
    "PFX304": _Fix(change=_tidied),
    **dict.fromkeys(["PFX101", "PFX102", "PFX103", "PFX104", "PFX105", "PFX106", "PFX107"], _MOVE),
}
