"""Whose order a printed mapping or list has: sorted, the application's own, or the client's."""

from __future__ import annotations

from dataclasses import replace

from prefixctl.core.findings import Confidence
from prefixctl.lint.evaluate.names import SETTLED_ENDINGS, split_words
from prefixctl.lint.evaluate.value import Cause, CauseKind

KEYS = "its keys come in the order in which a client sends them"
TOOLS = "its tools come in the order in which a client sends them"
STORE = "it lists what a store holds, in whatever order the store gives it"
SET = "a set has no fixed order"
_LEAVES = frozenset(
    ["name", "description", "type", "id", "title", "text", "default", "enum", "required", "role",
     "content", "value"]
)  # fmt: skip
"""Members of a tool schema that hold a text or a fixed list."""
_TOOL_LISTS = frozenset(["tools", "functions", "toolset", "toolbox"])
_TOOL = frozenset(["tool", "function"])
_LISTS = frozenset(
    ["list", "lists", "specs", "schemas", "definitions", "defs", "catalog", "catalogue", "registry"]
)
_ENUMERATING = frozenset(["all", "available", "existing", "known", "unique", "distinct"])


def keys_unordered(cause: Cause) -> Cause:
    """A mapping whose keys are printed in the order in which they come."""
    leaf = cause.variable.rsplit(".", 1)[-1]
    words = split_words(leaf)
    if cause.kind is not CauseKind.UNKNOWN or leaf in _LEAVES or SETTLED_ENDINGS & set(words):
        return cause
    return replace(
        cause,
        kind=CauseKind.ORDER,
        confidence=Confidence.MEDIUM,
        reason=KEYS,
    )


def set_unordered(cause: Cause) -> Cause:
    """A set that is printed as it is."""
    if cause.kind is not CauseKind.UNKNOWN:
        return cause
    return replace(
        cause,
        kind=CauseKind.ORDER,
        confidence=Confidence.MEDIUM,
        reason=SET,
    )


def list_unordered(cause: Cause) -> Cause:
    """A list that is printed as it is: tools in the client's order, or all that a store holds."""
    if cause.fixed or cause.kind not in {CauseKind.UNKNOWN, CauseKind.SETTLED}:
        return cause
    words = split_words(cause.variable.rsplit(".", 1)[-1])
    if _names_tools(words):
        reason, confidence = TOOLS, Confidence.MEDIUM
    elif cause.kind is CauseKind.UNKNOWN and _names_an_enumeration(words):
        reason, confidence = STORE, Confidence.LOW
    else:
        return cause
    return replace(cause, kind=CauseKind.ORDER, confidence=confidence, reason=reason)


def put_in_order(cause: Cause) -> Cause:
    """The same where it is sorted."""
    if cause.kind not in {CauseKind.ORDER, CauseKind.UNKNOWN, CauseKind.SETTLED}:
        return cause
    return replace(cause, kind=CauseKind.SETTLED, reason="it is sorted", fixed=True)


def _names_tools(words: tuple[str, ...]) -> bool:
    if not words:
        return False
    return words[-1] in _TOOL_LISTS or (bool(_TOOL & set(words)) and words[-1] in _LISTS)


def _names_an_enumeration(words: tuple[str, ...]) -> bool:
    """Whether a name speaks of all things of a kind: ``all_tags``, ``availableColors``."""
    return len(words) > 1 and words[0] in _ENUMERATING and words[-1].endswith("s")
