"""Filters, functions and methods: which of them bring a value, change it or leave it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jinja2 import nodes

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate import clocks
from prefixctl.lint.evaluate.frames import Macro
from prefixctl.lint.evaluate.names import SETTLED_ENDINGS, split_words
from prefixctl.lint.evaluate.state import State, attribute_of
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Hole,
    Site,
    Value,
    concat,
    hole_value,
    holes_value,
    map_causes,
    moved_to,
)

Evaluate = Callable[[State, nodes.Node], Value]

MAX_CALLS = 24
"""Macros inside macros at most."""
_RANDOM_FILTERS = frozenset(["random", "shuffle", "choice", "sample", "uuid", "to_uuid"])
_SORTING_FILTERS = frozenset(["dictsort", "sort", "sorted"])
_JSON_FILTERS = frozenset(["tojson", "to_json", "json", "json_dumps", "dump"])
_LENGTH_FILTERS = frozenset(["length", "count", "wordcount"])
_ENUMERATING = frozenset(["all", "available", "existing", "known", "unique", "distinct"])
_PLAIN_FUNCTIONS = frozenset(
    ["range", "dict", "lipsum", "cycler", "joiner", "raise_exception", "namespace"]
)
_MUTATORS = frozenset(["append", "extend", "update", "insert", "add", "setdefault"])
_SAME_TEXT = frozenset(
    ["strip", "lstrip", "rstrip", "trim", "replace", "split", "rsplit", "upper", "lower", "title",
     "capitalize", "removeprefix", "removesuffix", "items", "keys", "values", "copy", "encode",
     "decode", "splitlines", "startswith", "endswith", "count", "index", "find", "pop",
     "isoformat", "ljust", "rjust", "zfill", "partition", "rpartition"]
)  # fmt: skip
_LEAVES = frozenset(
    ["name", "description", "type", "id", "title", "text", "default", "enum", "required", "role",
     "content", "value"]
)  # fmt: skip


def filtered(state: State, node: nodes.Filter, base: Value, evaluate: Evaluate) -> Value:
    """The value of ``base | filter(...)``."""
    if node.name in _RANDOM_FILTERS:
        return concat([holes_value(base.holes), _random(f"{node.name} filter", node, node.name)])
    if node.name in clocks.FORMAT_FILTERS:
        return clocks.formatted(base, _pattern(state, node, evaluate))
    if node.name in _LENGTH_FILTERS:
        return map_causes(holes_value(base.holes), _counted)
    if node.name in _JSON_FILTERS:
        base = base if _sorts_keys(node) else map_causes(base, unordered)
    elif node.name in _SORTING_FILTERS:
        base = map_causes(base, _ordered)
    elif node.name == "join":
        base = map_causes(base, _enumerated)
    arguments = [h for n in _arguments(node) for h in evaluate(state, n).holes]
    return concat([base, holes_value(arguments)])


def called(state: State, node: nodes.Call, evaluate: Evaluate) -> Value:
    """The value of a call."""
    if isinstance(node.node, nodes.Getattr):
        return _method(state, node, node.node, evaluate)
    if not isinstance(node.node, nodes.Name):
        return concat([evaluate(state, node.node), _argument_holes(state, node, evaluate)])
    name = node.node.name
    bound = state.scope.find(name)
    if isinstance(bound, Macro):
        return _expanded(state, node, bound, evaluate)
    if name in clocks.FORMAT_METHODS:
        return _clock(state, node, name, evaluate)
    arguments = EMPTY if name == "raise_exception" else _argument_holes(state, node, evaluate)
    if name in _PLAIN_FUNCTIONS:
        return arguments
    return _function(state, node, _named(state, node.node), arguments, evaluate)


def _named(state: State, node: nodes.Name) -> Value:
    bound = state.scope.find(node.name)
    return bound if isinstance(bound, Value) else state.external(node.name, node.lineno)


def unordered(cause: Cause) -> Cause:
    """A value that a client gives, printed in whatever order its keys have."""
    leaf = cause.variable.rsplit(".", 1)[-1]
    own = split_words(leaf)[-1:]
    if cause.kind is not CauseKind.UNKNOWN or leaf in _LEAVES or SETTLED_ENDINGS & set(own):
        return cause
    return replace(
        cause,
        kind=CauseKind.ORDER,
        confidence=Confidence.MEDIUM,
        reason="its keys come in the order in which a client sends them",
    )


def _enumerated(cause: Cause) -> Cause:
    """All that a store holds, joined to one text: in whatever order the store gives it."""
    words = split_words(cause.variable.rsplit(".", 1)[-1])
    if cause.kind is not CauseKind.UNKNOWN or not words[1:] or words[0] not in _ENUMERATING:
        return cause
    return replace(
        cause,
        kind=CauseKind.ORDER,
        confidence=Confidence.LOW,
        reason="it lists what a store holds, in whatever order the store gives it",
    )


def _ordered(cause: Cause) -> Cause:
    if cause.kind not in {CauseKind.ORDER, CauseKind.UNKNOWN}:
        return cause
    return replace(cause, kind=CauseKind.SETTLED, reason="it is sorted")


def _counted(cause: Cause) -> Cause:
    if cause.kind is not CauseKind.CONVERSATION or "." in cause.variable:
        return cause
    return replace(cause, kind=CauseKind.POSITION, reason="it counts the turns")


def _sorts_keys(node: nodes.Filter) -> bool:
    return any(
        k.key == "sort_keys" and isinstance(k.value, nodes.Const) and bool(k.value.value)
        for k in node.kwargs
    )


def _arguments(node: nodes.Call | nodes.Filter) -> list[nodes.Node]:
    extra = [n for n in (node.dyn_args, node.dyn_kwargs) if n is not None]
    return [*node.args, *(k.value for k in node.kwargs), *extra]


def _argument_holes(state: State, node: nodes.Call, evaluate: Evaluate) -> Value:
    return holes_value(h for n in _arguments(node) for h in evaluate(state, n).holes)


def _pattern(state: State, node: nodes.Call | nodes.Filter, evaluate: Evaluate) -> str | None:
    """The first argument that is a text, which is the format."""
    literals = (evaluate(state, n).literal for n in _arguments(node))
    texts = [t for t in literals if t]
    return next((t for t in texts if "%" in t), texts[0] if texts else None)


def _clock(state: State, node: nodes.Call, name: str, evaluate: Evaluate) -> Value:
    cause = clocks.clock_cause(name, _pattern(state, node, evaluate))
    if cause.volatility is Volatility.CONSTANT:
        return EMPTY
    return hole_value(Hole(cause, Site(node.lineno, name)))


def _random(label: str, node: nodes.Node, word: str) -> Value:
    cause = Cause(
        label, CauseKind.RANDOM, Volatility.REQUEST, Confidence.HIGH, "it draws a random value",
        fixed=True,
    )  # fmt: skip
    return hole_value(Hole(cause, Site(node.lineno, word)))


def _method(state: State, node: nodes.Call, callee: nodes.Getattr, evaluate: Evaluate) -> Value:
    base, name = evaluate(state, callee.node), callee.attr
    if name in clocks.FORMAT_METHODS:
        pattern = _pattern(state, node, evaluate)
        if any(h.cause.kind is CauseKind.CLOCK for h in base.holes):
            return clocks.formatted(base, pattern)
    if name == "get" and node.args and isinstance(node.args[0], nodes.Const):
        return attribute_of(base, str(node.args[0].value))
    if name == "join" and node.args:
        return concat([evaluate(state, n) for n in node.args])
    arguments = _argument_holes(state, node, evaluate)
    if name in _MUTATORS:
        _mutate(state, callee.node, arguments)
        return EMPTY
    if name in _SAME_TEXT or name == "format" or base.literal is not None:
        return concat([base, arguments])
    return _function(state, node, evaluate(state, callee), arguments, evaluate)


def _mutate(state: State, target: nodes.Node, added: Value) -> None:
    if isinstance(target, nodes.Name):
        state.scope.extend(target.name, added)
    elif isinstance(target, nodes.Getattr) and isinstance(target.node, nodes.Name):
        state.scope.extend(f"{target.node.name}.{target.attr}", added)


def _function(
    state: State, node: nodes.Call, function: Value, arguments: Value, evaluate: Evaluate
) -> Value:
    """A function that the template does not define: its name speaks, then its arguments."""

    def as_call(cause: Cause) -> Cause:
        known = cause.kind in {CauseKind.CLOCK, CauseKind.RANDOM}
        return replace(cause, fixed=True, confidence=Confidence.HIGH) if known else cause

    result = map_causes(function, as_call)
    if any(h.cause.kind is CauseKind.CLOCK for h in result.holes):
        pattern = _pattern(state, node, evaluate)
        result = clocks.formatted(result, pattern if pattern and "%" in pattern else None)
    says_nothing = all(h.cause.kind is CauseKind.UNKNOWN for h in result.holes)
    if arguments.holes and says_nothing:
        return arguments
    return concat([result, arguments])


def _expanded(state: State, node: nodes.Call, macro: Macro, evaluate: Evaluate) -> Value:
    """The output of a macro. One that calls itself adds nothing but its arguments."""
    name = macro.node.name
    if name in state.calls or len(state.calls) >= MAX_CALLS:
        return _argument_holes(state, node, evaluate)
    frame: dict[str, Value | Macro] = {}
    given = [evaluate(state, n) for n in node.args]
    named = {k.key: evaluate(state, k.value) for k in node.kwargs}
    parameters = [a.name for a in macro.node.args]
    defaults = dict(zip(parameters[::-1], macro.node.defaults[::-1], strict=False))
    for index, parameter in enumerate(parameters):
        if index < len(given):
            frame[parameter] = given[index]
        elif parameter in named:
            frame[parameter] = named[parameter]
        else:
            default = defaults.get(parameter)
            frame[parameter] = EMPTY if default is None else evaluate(state, default)
    calls = state.calls
    state.calls = (*calls, name)
    state.scope.frames.append(frame)
    try:
        output = state.run_in(macro.template, macro.node.body)
    finally:
        state.scope.frames.pop()
        state.calls = calls
    return moved_to(output, Site(node.lineno, name)) if macro.template is not state.main else output
