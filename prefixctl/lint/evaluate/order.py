"""Whose order a printed mapping or list has: sorted, the application's own, or the client's."""

from __future__ import annotations

from dataclasses import replace

from prefixctl.core.findings import Confidence
from prefixctl.lint.evaluate.names import SETTLED_ENDINGS, split_words
from prefixctl.lint.evaluate.value import Cause, CauseKind

KEYS = "its keys come in the order in which a client sends them"
TOOLS = "its tools come in the order in which a client sends them"
FLAT = f"{TOOLS}, each with its own name"
NESTED = f"{TOOLS}, each with its name under 'function'"
SORTED = "it is sorted"
MEMBER = "function"
"""Where a tool of OpenAI's shape has its name: ``{"type": "function", "function": {"name": ..}}``.

Jinja2 takes an attribute that is not there for the same value everywhere, so that a sort by
``name`` leaves such tools in their order.
"""
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


def mapping_unordered(cause: Cause) -> Cause:
    """What is surely a mapping: a name that speaks of settings does not say who builds it.

    A constant is the application's own, and a plural may be a list.
    """
    leaf = cause.variable.rsplit(".", 1)[-1]
    named = cause.kind in {CauseKind.SETTLED, CauseKind.UNKNOWN}
    if not named or cause.fixed or leaf.isupper() or leaf in _LEAVES or leaf.lower().endswith("s"):
        return keys_unordered(cause)
    return replace(cause, kind=CauseKind.ORDER, confidence=Confidence.MEDIUM, reason=KEYS)


def counted(cause: Cause) -> Cause:
    """The same where only the number of members shows."""
    return put_in_order(cause) if cause.kind is CauseKind.ORDER else cause


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


def put_in_order(cause: Cause, by: str | None = None) -> Cause:
    """The same where it is sorted, by an attribute if one is given."""
    if cause.kind not in {CauseKind.ORDER, CauseKind.UNKNOWN, CauseKind.SETTLED}:
        return cause
    reason = f"{SORTED} by '{by}'" if by else SORTED
    return replace(cause, kind=CauseKind.SETTLED, reason=reason, fixed=True)


def left_as_it_was(cause: Cause) -> Cause:
    """Tools of OpenAI's shape behind a sort by what they do not have."""
    if not cause.reason.startswith(f"{SORTED} by ") or f"'{MEMBER}." in cause.reason:
        return cause
    if not _names_tools(split_words(cause.variable.rsplit(".", 1)[-1])):
        return cause
    reason = f"{NESTED}, and {cause.reason}"
    return replace(
        cause, kind=CauseKind.ORDER, confidence=Confidence.MEDIUM, reason=reason, fixed=False
    )


def with_shape(cause: Cause, *, nested: bool, flat: bool) -> Cause:
    """Tools in no order, with what is known of their shape."""
    if cause.reason != TOOLS or not (nested or flat):
        return cause
    return replace(cause, reason=NESTED if nested else FLAT)


def _names_tools(words: tuple[str, ...]) -> bool:
    if not words:
        return False
    return words[-1] in _TOOL_LISTS or (bool(_TOOL & set(words)) and words[-1] in _LISTS)


def _names_an_enumeration(words: tuple[str, ...]) -> bool:
    """Whether a name speaks of all things of a kind: ``all_tags``, ``availableColors``."""
    return len(words) > 1 and words[0] in _ENUMERATING and words[-1].endswith("s")
