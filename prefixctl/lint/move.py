"""Moving a line that prints one value behind the static text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from prefixctl.core.findings import Finding
from prefixctl.lint.measure import is_label
from prefixctl.lint.raw import RawFile, end_of

_HOLES = {
    "jinja": re.compile(r"\{\{[^{}]*\}\}"),
    "braces": re.compile(r"\{\{[^{}]*\}\}"),
    "python-format": re.compile(r"\{[^{}]*\}"),
}
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_TAG = re.compile(r"\{%[-+]?\s*(?P<end>end)?(?P<word>[a-z]+)\b(?P<rest>[^%]*)")
_OPENING = frozenset(["if", "for", "macro", "call", "filter", "block", "with", "autoescape"])
_SENTENCE_END = (".", "!", "?", "。", "！", "？", ":", "：")


def moved(raw: RawFile, finding: Finding, kind: str) -> Iterator[RawFile]:
    """The file with the finding's line behind the last static line, if that is one of its own.

    The line must print exactly one value and nothing may depend on its place: it stands in no
    block, begins and ends no sentence of another line, and its variable is not set behind it.
    """
    hole = _HOLES.get(kind)
    lines = raw.lines
    at = finding.location.line - 1
    if hole is None or at >= len(lines) or "{% raw" in raw.text or "{%- raw" in raw.text:
        return
    depths = _depths(lines) if kind == "jinja" else [0] * (len(lines) + 1)
    if depths[at] or not _alone(lines, at, hole):
        return
    target = _behind_static(lines, hole)
    while target < len(lines) and depths[target]:
        target += 1
    if target <= at + 1 or depths[target] or _is_set(finding, lines[at + 1 : target]):
        return
    after = at + 1
    while at == 0 and after < target and not lines[after].strip():
        after += 1
    line, last = lines[at], lines[target - 1]
    if not end_of(last):
        last, line = last + raw.newline, line.rstrip("\r\n")
    made = [*lines[:at], *lines[after : target - 1], last, line, *lines[target:]]
    yield replace(raw, text="".join(made))


def _alone(lines: list[str], at: int, hole: re.Pattern[str]) -> bool:
    """Whether a line is whole in itself: one value, and no part of a sentence around it."""
    line = lines[at].strip()
    found = hole.findall(line)
    rest = hole.sub("", line)
    if len(found) != 1 or re.search(r"[{}]", rest) or "{{-" in line or "-}}" in line:
        return False
    before = lines[at - 1].strip() if at else ""
    behind = lines[at + 1].strip() if at + 1 < len(lines) else ""
    if behind[:1].islower() or (line[:1].islower() and before and before[-1] not in ".!?:"):
        return False
    if re.search(r"\w", rest):
        return True
    return not before or (before.endswith(_SENTENCE_END[:6]) and not _is_label(before))


def _behind_static(lines: list[str], hole: re.Pattern[str]) -> int:
    """The index behind the last line of static text that is more than a label."""
    target = len(lines)
    while target:
        line = lines[target - 1].strip()
        if line and not hole.search(line) and "{%" not in line and not _is_label(line):
            break
        target -= 1
    return target


def _is_label(line: str) -> bool:
    return is_label(line)


def _depths(lines: list[str]) -> list[int]:
    """How many blocks are open at the beginning of each line, and at the end of the text."""
    text = _COMMENT.sub(lambda m: re.sub(r"[^\r\n]", " ", m.group()), "".join(lines))
    depths, depth, at = [], 0, 0
    for line in lines:
        depths.append(depth)
        for tag in _TAG.finditer(text[at : at + len(line)]):
            opens = tag["word"] in _OPENING or (tag["word"] == "set" and "=" not in tag["rest"])
            if tag["end"] or opens:
                depth += -1 if tag["end"] else 1
        at += len(line)
    return [*depths, depth]


def _is_set(finding: Finding, lines: list[str]) -> bool:
    name = re.escape((finding.variable or "").split(".")[0])
    return bool(re.search(rf"\{{%[-+]?\s*(?:set|import|from)\b[^%]*\b{name}\b", "".join(lines)))
