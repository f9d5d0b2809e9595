"""What a Python expression that makes a string prints. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prefixctl.lint.evaluate import clocks, order
from prefixctl.lint.evaluate.names import cause_of
from prefixctl.lint.evaluate.printf import PERCENT, fill
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Hole,
    Site,
    Value,
    choose,
    concat,
    hole_value,
    holes_value,
    loop,
    map_causes,
    text_value,
)

MAX_DEPTH = 60
"""Expressions inside expressions at most."""
MAX_FIELDS = 2000
"""Placeholders in one f-string at most; more were written by a program."""
MAX_SIZE = 500
"""Parts of a local value at most; a larger one is known by its name alone."""


@dataclass(slots=True)
class Env:
    """What is known where an expression stands.

    Attributes:
        place: The offset in the file of a node.
        fields: The offsets in the file of an f-string's placeholders.
        literal: What a constant prints, taken for a template.
        call: What a call prints.
        names: What names are bound to.
        own: Names that the file binds to a dict display: its keys have the application's order.
        at_import: Whether the code runs once, when the module is imported.
        at: Offset of the f-string placeholder that is open; parsers before 3.12 do not know it.
        depth: How many expressions are open.
    """

    place: Callable[[ast.AST], int]
    fields: Callable[[ast.JoinedStr], Sequence[int]]
    literal: Callable[[ast.Constant], Value]
    call: Callable[[Env, ast.Call], Value]
    names: Mapping[str, Value] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    at_import: bool = False
    at: int | None = None
    depth: int = 0


def evaluate(env: Env, node: ast.expr) -> Value:
    """The value of an expression; its holes have offsets in the file as places."""
    handler = _HANDLERS.get(type(node))
    if handler is None or env.depth > MAX_DEPTH:
        return EMPTY
    env.depth += 1
    try:
        return handler(env, node)
    finally:
        env.depth -= 1


def hole_at(env: Env, node: ast.AST, cause: Cause) -> Value:
    """One hole that stands where a node stands."""
    place = Site(1, offset=env.place(node) if env.at is None else env.at)
    return hole_value(Hole(cause, place, place))


def dotted(node: ast.expr) -> str:
    """A name with its attributes, without ``self``; nothing for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Call):
        inner = dotted(node.func)
        return ".".join([inner, *reversed(parts)]) if inner else ""
    if not isinstance(node, ast.Name):
        return ""
    if node.id not in {"self", "cls"}:
        parts.append(node.id)
    return ".".join(reversed(parts))


def named(env: Env, node: ast.expr, name: str) -> Value:
    """A value that only its name describes; an imported constant is the application's own."""
    cause = cause_of(name)
    if name.rsplit(".", 1)[-1].isupper() and cause.kind is not CauseKind.CLOCK:
        cause = replace(cause, kind=CauseKind.SETTLED, volatility=None, reason="it is a constant")
    return hole_at(env, node, cause)


def _constant(env: Env, node: ast.Constant) -> Value:
    if isinstance(node.value, str):
        return env.literal(node)
    return EMPTY if node.value in {None, Ellipsis} else text_value(str(node.value)[:40])


def _joined(env: Env, node: ast.JoinedStr) -> Value:
    if len(node.values) > MAX_FIELDS:
        return EMPTY
    places = iter(env.fields(node))
    printed: list[Value] = []
    outer = env.at
    for part in node.values:
        if isinstance(part, ast.Constant):
            printed.append(text_value(str(part.value)))
        elif isinstance(part, ast.FormattedValue):
            at = next(places, None)
            env.at = outer if at is None else at
            printed.append(_formatted(env, part))
    env.at = outer
    return concat(printed)


def _formatted(env: Env, node: ast.FormattedValue) -> Value:
    value = evaluate(env, node.value)
    spec = node.format_spec
    if isinstance(spec, ast.JoinedStr) and all(isinstance(p, ast.Constant) for p in spec.values):
        pattern = "".join(str(p.value) for p in spec.values if isinstance(p, ast.Constant))
        if "%" in pattern:
            value = clocks.formatted(value, pattern)
    return value


def _name(env: Env, node: ast.Name) -> Value:
    bound = env.names.get(node.id)
    return named(env, node, node.id) if bound is None else bound


def _attribute(env: Env, node: ast.Attribute) -> Value:
    base = evaluate(env, node.value) if isinstance(node.value, ast.Call) else EMPTY
    if base.holes:
        return clocks.attribute(base, node.attr) or base
    name = dotted(node)
    return named(env, node, name) if name else base


def _subscript(env: Env, node: ast.Subscript) -> Value:
    base = evaluate(env, node.value)
    if isinstance(node.slice, ast.Slice):
        stop = node.slice.upper
        if (
            node.slice.lower is None
            and isinstance(stop, ast.Constant)
            and isinstance(stop.value, int)
        ):
            return clocks.cut(base, stop.value)
        return base
    if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        name = dotted(node.value)
        return named(env, node, f"{name}.{node.slice.value}" if name else node.slice.value)
    return base


def _binary(env: Env, node: ast.BinOp) -> Value:
    if isinstance(node.op, ast.Mod):
        return fill(evaluate(env, node.left), PERCENT, _arguments(env, node.right))
    parts: list[ast.expr] = []
    current: ast.expr = node
    while isinstance(current, ast.BinOp) and isinstance(current.op, ast.Add):
        parts.append(current.right)
        current = current.left
    parts.append(current)
    if len(parts) == 1:
        return evaluate(env, node.left)
    return concat(evaluate(env, p) for p in reversed(parts))


def _arguments(env: Env, node: ast.expr) -> Callable[[str | None], Value]:
    """What ``%`` puts in: the members of a mapping by name, those of a tuple in order."""
    named_values = {}
    if isinstance(node, ast.Dict):
        keys = zip(node.keys, node.values, strict=True)
        named_values = {k.value: v for k, v in keys if isinstance(k, ast.Constant)}
    ordered = iter(node.elts if isinstance(node, ast.Tuple) else [node])

    def argument(name: str | None) -> Value:
        given = next(ordered, None) if name is None else named_values.get(name)
        return evaluate(env, given) if given is not None else EMPTY

    return argument


def _either(env: Env, node: ast.IfExp) -> Value:
    return choose([evaluate(env, node.body), evaluate(env, node.orelse)])


def _first(env: Env, node: ast.BoolOp) -> Value:
    values = [evaluate(env, v) for v in node.values]
    return next((v for v in values if v.holes), choose(values))


def _several(env: Env, node: ast.List | ast.Tuple | ast.Set) -> Value:
    listed = concat(evaluate(env, e) for e in node.elts)
    return map_causes(listed, order.set_unordered) if isinstance(node, ast.Set) else listed


def _mapping(env: Env, node: ast.Dict) -> Value:
    return concat(holes_value(evaluate(env, v).holes) for v in node.values)


def _starred(env: Env, node: ast.Starred) -> Value:
    return evaluate(env, node.value)


def _comprehension(env: Env, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
    source = evaluate(env, node.generators[0].iter)
    targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    outer = env.names
    env.names = {**outer, **dict.fromkeys(targets, holes_value(source.holes))}
    try:
        body = evaluate(env, node.elt)
    finally:
        env.names = outer
    return loop(body, dynamic=is_dynamic(source), conversation=False)


def is_dynamic(value: Value) -> bool:
    """Whether a value differs between requests."""
    return any(
        h.cause.volatility is not None and h.cause.volatility.is_dynamic for h in value.holes
    )


def _call(env: Env, node: ast.Call) -> Value:
    return env.call(env, node)


_HANDLERS: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Constant: _constant,
    ast.JoinedStr: _joined,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.BinOp: _binary,
    ast.IfExp: _either,
    ast.BoolOp: _first,
    ast.List: _several,
    ast.Tuple: _several,
    ast.Set: _several,
    ast.Dict: _mapping,
    ast.Starred: _starred,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.SetComp: _comprehension,
    ast.Call: _call,
}
