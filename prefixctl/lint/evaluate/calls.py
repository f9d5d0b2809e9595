"""Filters, functions and methods: which of them bring a value, change it or leave it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jinja2 import nodes

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate import clocks, order
from prefixctl.lint.evaluate.frames import Binding, Macro, Record
from prefixctl.lint.evaluate.macros import arguments_of, binding, expand
from prefixctl.lint.evaluate.printf import FIELDS, PERCENT, fill
from prefixctl.lint.evaluate.state import State
from prefixctl.lint.evaluate.value import (
    EMPTY,
    SOME,
    Cause,
    CauseKind,
    Hole,
    Site,
    Value,
    choose,
    computed,
    concat,
    derived,
    hole_value,
    map_causes,
)

Evaluate = Callable[[State, nodes.Node], Value]

_RANDOM_FILTERS = frozenset(["random", "shuffle", "choice", "sample", "uuid", "to_uuid"])
_SORTING_FILTERS = frozenset(["dictsort", "sort", "sorted"])
_JSON_FILTERS = frozenset(
    ["tojson", "to_json", "json", "json_dumps", "dump", "json_encode", "to_nice_json"]
)
_LENGTH_FILTERS = frozenset(["length", "count", "wordcount"])
_PLAIN_FUNCTIONS = frozenset(["range", "dict", "joiner", "namespace", "caller", "loop"])
_TRANSLATING = frozenset(["gettext", "ngettext", "_"])
_SAME_FILTERS = frozenset(
    ["string", "list", "safe", "e", "escape", "items", "sort", "dictsort", "reverse", "tojson"]
)
"""Filters that leave the text as it is, or all that is known of it."""
_MUTATORS = frozenset(["append", "extend", "update", "insert", "add", "setdefault"])
_SAME_TEXT = frozenset(
    ["strip", "lstrip", "rstrip", "trim", "replace", "split", "rsplit", "upper", "lower", "title",
     "capitalize", "removeprefix", "removesuffix", "items", "keys", "values", "copy", "encode",
     "decode", "splitlines", "startswith", "endswith", "count", "index", "find", "pop",
     "isoformat", "ljust", "rjust", "zfill", "partition", "rpartition"]
)  # fmt: skip


def filtered_by(state: State, node: nodes.Filter, base: Value, evaluate: Evaluate) -> Value:
    """The value of a chain of filters around a body: the innermost comes first."""
    if isinstance(node.node, nodes.Filter):
        base = filtered_by(state, node.node, base, evaluate)
    return filtered(state, node, base, evaluate)


def filtered(state: State, node: nodes.Filter, base: Value, evaluate: Evaluate) -> Value:
    """The value of ``base | filter(...)``."""
    if node.name in _RANDOM_FILTERS:
        return concat([derived([base]), _random(f"{node.name} filter", node, node.name)])
    if node.name in clocks.FORMAT_FILTERS:
        return clocks.formatted(base, _pattern(state, node, evaluate))
    if node.name in _LENGTH_FILTERS:
        return map_causes(computed([base]), _counted)
    if node.name == "format" and base.literal is not None:
        given = iter([evaluate(state, n) for n in arguments_of(node)])
        return fill(base, PERCENT, lambda _: next(given, EMPTY))
    if node.name in _JSON_FILTERS:
        base = _as_json(state, node, base)
    elif node.name in _SORTING_FILTERS:
        by = _attribute(node) if node.name == "sort" else None
        base = map_causes(base, lambda cause: order.put_in_order(cause, by))
    elif node.name == "map" and (_attribute(node) or "").startswith(f"{order.MEMBER}."):
        base = map_causes(base, order.left_as_it_was)
    elif node.name == "join":
        separator = derived(evaluate(state, n) for n in arguments_of(node))
        return concat([map_causes(base, order.list_unordered), separator])
    changed = EMPTY if node.name in _SAME_FILTERS else SOME
    return concat([derived(evaluate(state, n) for n in arguments_of(node)), base, changed])


def _attribute(node: nodes.Filter) -> str | None:
    """The attribute that a filter names."""
    given = next((k.value for k in node.kwargs if k.key == "attribute"), None)
    return str(given.value) if isinstance(given, nodes.Const) else None


def _as_json(state: State, node: nodes.Filter, base: Value) -> Value:
    """A value as JSON. Jinja2's own ``tojson`` sorts keys; that of chat templates does not.

    A chat template prints the list of tools that it is given: no template can order it.
    """
    sorts = _sorts_keys(node) or (node.name == "tojson" and not state.chat)
    base = base if sorts else map_causes(base, order.keys_unordered)
    return base if state.chat else map_causes(base, order.list_unordered)


def percent(state: State, text: Value, arguments: nodes.Node, evaluate: Evaluate) -> Value:
    """The value of ``text % arguments``."""
    if isinstance(arguments, nodes.Dict):
        members = {
            str(p.key.value): evaluate(state, p.value)
            for p in arguments.items
            if isinstance(p.key, nodes.Const)
        }
        return fill(text, PERCENT, lambda name: members.get(name or "", EMPTY))
    listed = arguments.items if isinstance(arguments, nodes.Tuple) else [arguments]
    given = iter([evaluate(state, n) for n in listed])
    return fill(text, PERCENT, lambda _: next(given, EMPTY))


def called(state: State, node: nodes.Call, evaluate: Evaluate) -> Value:
    """The value of a call."""
    bound = binding(state, node.node)
    if isinstance(bound, Macro):
        return expand(state, node, bound, evaluate)
    if isinstance(node.node, nodes.Name):
        own = _own_function(state, node, node.node.name, evaluate) if bound is None else None
        return own or _named_function(state, node, node.node, bound, evaluate)
    if isinstance(node.node, nodes.Getattr) and not isinstance(bound, Value):
        return _method(state, node, node.node, evaluate)
    return concat([evaluate(state, node.node), _arguments(state, node, evaluate)])


def _own_function(state: State, node: nodes.Call, name: str, evaluate: Evaluate) -> Value | None:
    """The value of a call of a function of Jinja2's own; None for any other."""
    if name == "super":
        return state.parent_block(state)
    if name == "lipsum":
        return concat([_arguments(state, node, evaluate), _random("lipsum()", node, name)])
    if name == "cycler":
        return concat(evaluate(state, n) for n in node.args)
    return _translated(state, node, evaluate) if name in _TRANSLATING else None


def _named_function(
    state: State, node: nodes.Call, callee: nodes.Name, bound: Binding | None, evaluate: Evaluate
) -> Value:
    """The value of a call of a function that only its name describes."""
    if callee.name in clocks.FORMAT_METHODS:
        return _clock(state, node, callee.name, evaluate)
    if callee.name == "raise_exception":
        return EMPTY
    arguments = _arguments(state, node, evaluate)
    if callee.name in _PLAIN_FUNCTIONS or isinstance(bound, Record):
        return arguments
    if not isinstance(bound, Value):
        bound = state.external(callee.name, callee.lineno, called=True)
    return _function(state, node, bound, arguments, evaluate)


def _translated(state: State, node: nodes.Call, evaluate: Evaluate) -> Value:
    """``gettext(text)``, ``ngettext(one, many, count)``."""
    values = [evaluate(state, n) for n in node.args]
    return choose(values[:2], derived(values[2:]).reads) if values[2:] else concat(values)


def _counted(cause: Cause) -> Cause:
    if cause.kind is not CauseKind.CONVERSATION or "." in cause.variable:
        return cause
    return replace(cause, kind=CauseKind.POSITION, reason="it counts the turns")


def _sorts_keys(node: nodes.Filter) -> bool:
    return any(
        k.key == "sort_keys" and isinstance(k.value, nodes.Const) and bool(k.value.value)
        for k in node.kwargs
    )


def _arguments(state: State, node: nodes.Call, evaluate: Evaluate) -> Value:
    """Something that a call makes of its arguments."""
    return derived(evaluate(state, n) for n in arguments_of(node))


def _pattern(state: State, node: nodes.Call | nodes.Filter, evaluate: Evaluate) -> str | None:
    """The first argument that is a text, which is the format."""
    literals = (evaluate(state, n).literal for n in arguments_of(node))
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
    name = callee.attr
    if isinstance(callee.node, nodes.Name) and callee.node.name == "self":
        return state.own_block(state, name)
    base = evaluate(state, callee.node)
    own = _own_method(state, node, callee, base, evaluate)
    if own is not None:
        return own
    arguments = _arguments(state, node, evaluate)
    if name in _SAME_TEXT or name == "format" or base.literal is not None:
        return concat([arguments, base, SOME if node.args else EMPTY])
    return _function(state, node, evaluate(state, callee), arguments, evaluate)


def _own_method(
    state: State, node: nodes.Call, callee: nodes.Getattr, base: Value, evaluate: Evaluate
) -> Value | None:
    """The value of a method that is known by its name; None for any other."""
    name = callee.attr
    given = [evaluate(state, n) for n in node.args]
    if name in clocks.FORMAT_METHODS and any(h.cause.kind is CauseKind.CLOCK for h in base.holes):
        return clocks.formatted(base, _pattern(state, node, evaluate))
    if name == "get" and given and isinstance(node.args[0], nodes.Const):
        member = nodes.Getitem(callee.node, node.args[0], "load", lineno=node.lineno)
        return concat([evaluate(state, member), *given[1:]])
    if name in _MUTATORS:
        _mutate(state, callee.node, concat(evaluate(state, n) for n in arguments_of(node)))
        return EMPTY
    if name == "join" and given:
        return concat(given)
    if base.literal is None or name not in {"format", "cycle", "next"}:
        return None
    return _formatted(state, node, base, evaluate) if name == "format" else choose(given)


def _formatted(state: State, node: nodes.Call, text: Value, evaluate: Evaluate) -> Value:
    """The value of ``text.format(...)``."""
    given = {str(i): evaluate(state, n) for i, n in enumerate(node.args)}
    given |= {k.key: evaluate(state, k.value) for k in node.kwargs}
    ordered = iter(list(given.values()))
    return fill(text, FIELDS, lambda n: given.get(n, EMPTY) if n else next(ordered, EMPTY))


def _mutate(state: State, target: nodes.Node, added: Value) -> None:
    if isinstance(target, nodes.Name):
        state.scope.extend(state.scope.cell(target.name), added)
    elif isinstance(target, nodes.Getattr):
        holder = binding(state, target.node)
        if isinstance(holder, Record):
            state.scope.extend(holder.attributes.get(target.attr), added)


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
    if arguments.parts and says_nothing:
        return arguments
    return concat([result, arguments])
