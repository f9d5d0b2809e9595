"""Fixes in SARIF: which stretch of a file goes, and what comes in its place."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import quote

from prefixctl.lint.fix import Proposed
from prefixctl.lint.raw import RawFile


def fix_value(fix: Proposed | None) -> dict[str, Any]:
    """The ``fixes`` of a result; nothing if it has none."""
    if fix is None:
        return {}
    change = {
        "artifactLocation": {"uri": uri_of(fix.before.path)},
        "replacements": [*_replacements(fix.before, fix.after)],
    }
    text = "prefixctl lint --fix: changes no word"
    return {"fixes": [{"description": {"text": text}, "artifactChanges": [change]}]}


def uri_of(path: str) -> str:
    """A path as a URI reference; a colon in its first part would be read as a scheme."""
    made = quote(path.replace("\\", "/").removeprefix("./"), safe="/", errors="replace")
    return f"file://{made}" if made.startswith("/") else made


def _replacements(before: RawFile, after: RawFile) -> Iterator[dict[str, Any]]:
    """What differs, as whole lines; a byte order mark as bytes, since no line holds it."""
    if before.mark != after.mark:
        yield {"deletedRegion": {"byteOffset": 0, "byteLength": len(before.mark)}}
    old, new = before.lines, after.lines
    for what, i, i_end, j, j_end in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        made: dict[str, Any] = {"deletedRegion": _region(old, i, i_end)}
        if j_end > j:
            made["insertedContent"] = {"text": "".join(new[j:j_end])}
        yield made


def _region(lines: list[str], start: int, end: int) -> dict[str, int]:
    """From the beginning of a line to the beginning of another one, or to the end of the text."""
    if end < len(lines) or not lines:
        return {"startLine": start + 1, "startColumn": 1, "endLine": end + 1, "endColumn": 1}
    last = lines[-1]
    open_end = last.rstrip("\r\n") == last
    last_line, column = (end, len(last) + 1) if open_end else (end + 1, 1)
    return {"startLine": start + 1, "startColumn": 1, "endLine": last_line, "endColumn": column}
