"""Names that belong to the agent: what stands behind "You are" is set once per deployment.

A variable called ``name`` says nothing by itself; the words ahead of it do.
"""

from __future__ import annotations

import re
from dataclasses import replace

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate.names import split_words
from prefixctl.lint.evaluate.value import CauseKind, Hole, Part, Text, Value

_INTRODUCTION = re.compile(
    r"(?:\b(?:you are|you're|your name is|act as)(?: an?| the)?|你是|你叫|你的名字是)[\s\"'*`]*\Z",
    re.IGNORECASE,
)
_JOINT = re.compile(r"[\s\"'*`]*(?:,|，|\band\b|\bthe\b|\ba\b|-|\s)[\s\"'*`]*", re.IGNORECASE)
_PERSONAL = frozenset(["name", "role", "title", "persona", "position", "job"])
_LOOKBACK_CHARS = 40


def with_persona(value: Value) -> Value:
    """The value with an agent's name and role, as far as they were unknown, named as such."""
    if not any(h.cause.kind is CauseKind.UNKNOWN for h in value.holes):
        return value
    parts: list[Part] = []
    introduced = False
    for index, part in enumerate(value.parts):
        if isinstance(part, Hole):
            before = value.parts[index - 1] if index else None
            ahead = before.text[-_LOOKBACK_CHARS:] if isinstance(before, Text) else ""
            joined = introduced and bool(_JOINT.fullmatch(ahead))
            introduced = bool(_INTRODUCTION.search(ahead)) or joined
            parts.append(_as_persona(part) if introduced else part)
        else:
            parts.append(part)
    return replace(value, parts=tuple(parts))


def _as_persona(hole: Hole) -> Hole:
    words = split_words(hole.cause.variable)
    if hole.cause.kind is not CauseKind.UNKNOWN or not words or words[-1] not in _PERSONAL:
        return hole
    cause = replace(
        hole.cause,
        kind=CauseKind.DEPLOYMENT,
        volatility=Volatility.DEPLOYMENT,
        confidence=Confidence.LOW,
        reason="it names the agent",
    )
    return replace(hole, cause=cause)
