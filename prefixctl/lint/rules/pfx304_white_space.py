"""White space that an editor may change without anybody's intent.

## What it finds
A prompt file whose lines end in more than one way (LF, CRLF, CR), or that begins or ends with blank
lines. Chat templates and sections of a governed prompt are looked at for mixed line ends only:
there, blank lines at the ends may separate one part from the next.

## Why it matters
Editors, `git` settings and copy and paste change such white space in passing. Nobody sees it in a
review, but the tokens are others, and everything behind the first changed one is cold.

## Bad
```text
You answer questions about orders, parcels and returns.\\r
Answer in at most five sentences.
\\x20
\\x20
```

## Good
```text
You answer questions about orders, parcels and returns.
Answer in at most five sentences.
```

## Fix
`--fix` brings all line ends to the one that the file uses most, and removes the blank lines. A file
with CRLF throughout stays so.
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.lint.raw import RawFile, end_of
from prefixctl.lint.rule import Reading, Rule

SEVERAL_ENDS = "its lines end in several ways"
_NAMES = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


def _check(_rule: Rule, _reading: Reading) -> Iterator[Finding]:
    return iter(())


def _check_file(rule: Rule, file: RawFile) -> Iterator[Finding]:
    lines = file.lines
    if "\r" in file.text and len(ends := file.line_ends) > 1:
        counts = ", ".join(f"{n} {_NAMES[end]}" for end, n in sorted(ends.items()))
        odd = next(i for i, line in enumerate(lines, 1) if end_of(line) not in {file.newline, ""})
        yield _finding(rule, file, odd, f"{SEVERAL_ENDS}: {counts}")
    if not file.standalone or not file.text.strip():
        return
    before, behind = blank_lines(lines)
    if before:
        yield _finding(rule, file, 1, f"the file begins with {_counted(before)}")
    if behind:
        yield _finding(
            rule, file, len(lines) - behind + 1, f"the file ends with {_counted(behind)}"
        )


def blank_lines(lines: list[str]) -> tuple[int, int]:
    """How many blank lines a text begins and ends with; both 0 if it is blank altogether."""
    filled = [i for i, line in enumerate(lines) if line.strip()]
    return (filled[0], len(lines) - filled[-1] - 1) if filled else (0, 0)


def _counted(count: int) -> str:
    return "a blank line" if count == 1 else f"{count} blank lines"


def _finding(rule: Rule, file: RawFile, line: int, message: str) -> Finding:
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=rule.severity,
        confidence=rule.confidence,
        location=Location(path=file.path, line=line),
        message=message,
        advice="have the editor save one line end and no blank lines at the ends, or run lint with "
        "--fix",
    )


RULE = Rule(
    id="PFX304",
    name="stray-white-space",
    severity=Severity.INFO,
    confidence=Confidence.HIGH,
    check=_check,
    check_file=_check_file,
)
