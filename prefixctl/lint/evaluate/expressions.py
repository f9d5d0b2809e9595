"""The value of a Jinja2 expression: its text, its holes, and how often they change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jinja2 import nodes

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate import calls, clocks
from prefixctl.lint.evaluate.frames import WHOLE, Record, passed_as
from prefixctl.lint.evaluate.macros import binding
from prefixctl.lint.evaluate.state import State, attribute_of
from prefixctl.lint.evaluate.value import (
    EMPTY,
    SOME,
    Cause,
    CauseKind,
    Hole,
    Site,
    Text,
    Value,
    boolean,
    choose,
    computed,
    concat,
    derived,
    hole_value,
    map_causes,
    map_holes,
    text_value,
)

_GLOBALS = frozenset(
    ["range", "dict", "lipsum", "cycler", "joiner", "namespace", "loop", "caller", "self", "super",
     "varargs", "kwargs", "raise_exception"]
)  # fmt: skip
_OF_A_LOOP = "loop."
_SAME_PRESENCE = frozenset(["trim", "lower", "upper", "string", "list", "safe", "e"])
"""Filters that leave what is there and what is not as it is."""
_TYPE_TESTS = frozenset(
    ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number",
     "boolean", "integer", "float", "true", "false", "callable"]
)  # fmt: skip


def evaluate(state: State, node: nodes.Node) -> Value:
    """The value of an expression."""
    state.step()
    handler = _HANDLERS.get(type(node))
    if handler is None:
        return concat(evaluate(state, child) for child in node.iter_child_nodes())
    return handler(state, node)


def position_of_turn(state: State, variable: str, line: int) -> Value:
    """A value that says where in the conversation a turn stands, counted from its end."""
    cause = Cause(
        variable, CauseKind.POSITION, None, Confidence.HIGH, "it moves when a turn is added"
    )
    return hole_value(Hole(cause, Site(line, variable))) if state.chat else EMPTY


def _const(state: State, node: nodes.Const) -> Value:  # noqa: ARG001 - a handler
    return text_value(str(node.value))


def _data(state: State, node: nodes.TemplateData) -> Value:  # noqa: ARG001 - a handler
    return text_value(node.data)


def _name(state: State, node: nodes.Name) -> Value:
    bound = state.scope.find(node.name)
    if bound is not None:
        return state.scope.whole(bound)
    if node.name in _GLOBALS:
        return EMPTY
    return state.external(node.name, node.lineno)


def _getattr(state: State, node: nodes.Getattr) -> Value:
    bound = _of_record(state, node)
    return _member(state, evaluate(state, node.node), node.attr) if bound is None else bound


def _of_record(state: State, node: nodes.Getattr | nodes.Getitem) -> Value | None:
    """The value of an attribute of a namespace, a mapping written out, an imported template."""
    if isinstance(node.node, nodes.Dict):
        return _of_literal(state, node, node.node)
    if isinstance(holder := binding(state, node.node), Record):
        bound = binding(state, node)
        if bound is not None:
            return _read_here(state.scope.whole(bound), node.lineno)
        return None if state.scope.attribute(holder, WHOLE) else EMPTY
    return None


def _of_literal(
    state: State, node: nodes.Getattr | nodes.Getitem, mapping: nodes.Dict
) -> Value | None:
    """The value of a member of a mapping that is written out on the spot."""
    if isinstance(node, nodes.Getattr):
        wanted: object = node.attr
    else:
        wanted = node.arg.value if isinstance(node.arg, nodes.Const) else None
    if not all(isinstance(p.key, nodes.Const) for p in mapping.items):
        return None
    found = [p.value for p in mapping.items if p.key.value == wanted]  # type: ignore[attr-defined]
    return evaluate(state, found[-1]) if found else None


def _read_here(value: Value, line: int) -> Value:
    """A value that says where a round or a turn stands: it comes from where it is asked for."""
    if not any(h.cause.variable.startswith(_OF_A_LOOP) for h in value.holes):
        return value
    return map_holes(
        value,
        lambda h: (
            replace(h, origin=Site(line, h.cause.variable))
            if h.cause.variable.startswith(_OF_A_LOOP)
            else h
        ),
    )


def _getitem(state: State, node: nodes.Getitem) -> Value:
    if isinstance(node.arg, nodes.Const) and (bound := _of_record(state, node)) is not None:
        return bound
    base = evaluate(state, node.node)
    if isinstance(node.arg, nodes.Slice):
        return _slice(state, base, node.arg)
    if isinstance(node.arg, nodes.Const):
        if isinstance(node.arg.value, str):
            return _member(state, base, node.arg.value)
        return _first_message(state, base) if isinstance(node.arg.value, int) else base
    if any(h.cause.kind is CauseKind.CONVERSATION for h in base.holes):
        last = isinstance(node.arg, nodes.Neg)
        return position_of_turn(state, "messages[-1]", node.lineno) if last else base
    return concat([derived([base]), computed([evaluate(state, node.arg)])])


def _slice(state: State, base: Value, part: nodes.Slice) -> Value:
    if (
        part.start is None
        and isinstance(part.stop, nodes.Const)
        and isinstance(part.stop.value, int)
    ):
        return concat([clocks.cut(base, part.stop.value), SOME])
    bounds = [n for n in (part.start, part.stop, part.step) if n is not None]
    return concat([derived(evaluate(state, n) for n in bounds), base, SOME])


def _member(state: State, base: Value, name: str) -> Value:
    if state.role == "system" and state.turns:
        base = map_causes(base, _as_system)
    if base.literal is not None:
        return EMPTY
    return attribute_of(base, name)


def _first_message(state: State, base: Value) -> Value:
    """``messages[0]``: the application's own system text, unless a condition says otherwise."""
    return map_causes(base, _as_retrieved if state.role == "retrieved" else _as_first)


def _as_system(cause: Cause) -> Cause:
    if cause.kind is not CauseKind.CONVERSATION:
        return cause
    return replace(cause, kind=CauseKind.SYSTEM, reason="it is the system text")


def _as_first(cause: Cause) -> Cause:
    return replace(_as_system(cause), variable=f"{cause.variable}[0]")


def _as_retrieved(cause: Cause) -> Cause:
    if cause.kind is not CauseKind.CONVERSATION:
        return cause
    return replace(
        cause,
        kind=CauseKind.REQUEST,
        volatility=Volatility.REQUEST,
        confidence=Confidence.MEDIUM,
        reason="it is a message with retrieved text",
        fixed=True,
    )


def _condexpr(state: State, node: nodes.CondExpr) -> Value:
    if isinstance(node.test, nodes.Const):
        chosen = node.expr1 if node.test.value else node.expr2
        return EMPTY if chosen is None else evaluate(state, chosen)
    options = [node.expr1] if node.expr2 is None else [node.expr1, node.expr2]
    given = _default_of_given(state, options, asked_for(node.test))
    if given is not None:
        return given
    values = [evaluate(state, n) for n in options]
    return choose(values if len(values) > 1 else [*values, EMPTY], condition(state, node.test))


def _or(state: State, node: nodes.Or) -> Value:
    return _first_given(state, [node.left, node.right])


def _and(state: State, node: nodes.And) -> Value:
    """``a and b``: b wherever a is given."""
    left, right = evaluate(state, node.left), evaluate(state, node.right)
    holes = condition(state, node.left)
    return right if _is_given(left) and not holes else choose([right, left], holes)


def _default(state: State, node: nodes.Filter) -> Value:
    return _first_given(state, [n for n in (node.node, *node.args[:1]) if n is not None])


def _first_given(state: State, options: list[nodes.Expr]) -> Value:
    """``a or b``, ``a | default(b)``: a value that changes is printed wherever it is given."""
    given = _default_of_given(state, options, asked_for(options[0]))
    if given is not None:
        return given
    values = [evaluate(state, n) for n in options]
    holes = condition(state, options[0])
    return values[0] if _is_given(values[0]) and not holes else choose(values, holes)


def _is_given(value: Value) -> bool:
    """Whether a value is there in any case: one that changes is taken to be."""
    return any(
        bool(p.text) if isinstance(p, Text)
        else isinstance(p, Hole) and p.cause.volatility is not None
        for p in value.parts
    )  # fmt: skip


def _default_of_given(state: State, options: list[nodes.Expr], asked: set[str]) -> Value | None:
    """A clock that stands in for a variable that a caller may give, if that is what it is."""
    for option in options:
        if isinstance(option, nodes.Name) and option.name in asked:
            if state.scope.find(option.name) is not None:
                continue
            rest = [evaluate(state, n) for n in options if n is not option]
            if any(h.cause.kind is CauseKind.CLOCK for v in rest for h in v.holes):
                return passed_as(choose(rest), option.name)
    return None


def asked_for(test: nodes.Node) -> set[str]:
    """Names whose presence a condition asks for: ``x``, ``not x``, ``x is defined``."""
    asked: set[str] = set()
    pending: list[nodes.Node] = [test]
    while pending:
        node = pending.pop()
        if isinstance(node, nodes.Name):
            asked.add(node.name)
        elif isinstance(node, (nodes.Not, nodes.And, nodes.Or)) or (
            isinstance(node, nodes.Test) and node.name in _TYPE_TESTS
        ):
            pending.extend(node.iter_child_nodes())
    return asked


def condition(state: State, test: nodes.Node) -> tuple[Hole, ...]:
    """The holes on whose values a condition depends.

    Whether a variable is given, or of which type it is, says nothing about its value.
    """
    if isinstance(test, nodes.Test) and test.name in _TYPE_TESTS:
        return evaluate(state, test.node).deciding
    if isinstance(test, nodes.Getitem) and not isinstance(test.arg, (nodes.Const, nodes.Slice)):
        there = _of_kind(evaluate(state, test.node), present=True)
        return (*there, *evaluate(state, test.arg).reads)
    if isinstance(test, (nodes.Name, nodes.Getattr, nodes.Getitem)):
        return _of_kind(evaluate(state, test), present=True)
    if isinstance(test, nodes.Filter) and test.name in _SAME_PRESENCE and test.node is not None:
        return condition(state, test.node)
    if isinstance(test, (nodes.And, nodes.Or, nodes.Not)):
        holes = [h for child in test.iter_child_nodes() for h in condition(state, child)]
        if isinstance(test, nodes.And) and _picks_tool_calls(test):
            holes = [h for h in holes if h.cause.kind is not CauseKind.POSITION]
        return tuple(holes)
    return _of_kind(evaluate(state, test), present=False)


def _picks_tool_calls(test: nodes.And) -> bool:
    """Whether a condition holds for turns with tool calls alone.

    Such a turn is answered before the user speaks again: where it stands from the end moves
    nothing of a conversation that is over.
    """
    for part in test.iter_child_nodes():
        if isinstance(part, nodes.And) and _picks_tool_calls(part):
            return True
        read = part
        if isinstance(part, nodes.Call) and part.args and isinstance(part.node, nodes.Getattr):
            read = part.args[0] if part.node.attr == "get" else part
        named = (
            (isinstance(read, nodes.Getattr) and read.attr == "tool_calls")
            or (isinstance(read, nodes.Const) and read.value == "tool_calls")
            or (isinstance(read, nodes.Getitem) and isinstance(read.arg, nodes.Const)
                and read.arg.value == "tool_calls")
        )  # fmt: skip
        if named:
            return True
    return False


def _of_kind(value: Value, *, present: bool) -> tuple[Hole, ...]:
    if present:
        moving = (h for h in value.holes if h.cause.kind is CauseKind.POSITION)
        return (*moving, *value.deciding)
    return value.reads


def _concat(state: State, node: nodes.Concat) -> Value:
    return concat(evaluate(state, n) for n in node.nodes)


def _binary(state: State, node: nodes.BinExpr) -> Value:
    left = evaluate(state, node.left)
    if isinstance(node, nodes.Mod) and left.literal is not None:
        return calls.percent(state, left, node.right, evaluate)
    return computed([left, evaluate(state, node.right)])


def _add(state: State, node: nodes.Add) -> Value:
    """A chain of additions is a tree that leans to the left: walked without recursion."""
    parts: list[nodes.Node] = []
    current: nodes.Node = node
    while isinstance(current, nodes.Add):
        parts.append(current.right)
        current = current.left
    parts.append(current)
    return concat(evaluate(state, p) for p in reversed(parts))


def _compared(state: State, node: nodes.Node) -> Value:
    """A comparison: yes or no, by what it reads, and where it asks for the place of a turn."""
    if isinstance(node, nodes.Not) or (isinstance(node, nodes.Test) and node.name in _TYPE_TESTS):
        return boolean(condition(state, node))
    holes = [h for child in node.iter_child_nodes() for h in evaluate(state, child).reads]
    return boolean(
        tuple(
            dict.fromkeys(
                replace(h, origin=Site(node.lineno, h.origin.word))
                if h.cause.kind is CauseKind.POSITION
                else h
                for h in holes
            )
        )
    )


def _filter(state: State, node: nodes.Filter) -> Value:
    if node.name in {"default", "d"}:
        return _default(state, node)
    base = EMPTY if node.node is None else evaluate(state, node.node)
    return calls.filtered(state, node, base, evaluate)


def _call(state: State, node: nodes.Call) -> Value:
    return calls.called(state, node, evaluate)


_HANDLERS: dict[type[nodes.Node], Callable[..., Value]] = {
    nodes.Const: _const,
    nodes.TemplateData: _data,
    nodes.Name: _name,
    nodes.Getattr: _getattr,
    nodes.Getitem: _getitem,
    nodes.CondExpr: _condexpr,
    nodes.Or: _or,
    nodes.And: _and,
    nodes.Concat: _concat,
    nodes.Add: _add,
    nodes.Sub: _binary,
    nodes.Mul: _binary,
    nodes.Div: _binary,
    nodes.FloorDiv: _binary,
    nodes.Mod: _binary,
    nodes.Pow: _binary,
    nodes.Compare: _compared,
    nodes.Test: _compared,
    nodes.Not: _compared,
    nodes.Filter: _filter,
    nodes.Call: _call,
}
