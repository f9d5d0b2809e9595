"""The value of a Jinja2 expression: its text, its holes, and how often they change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jinja2 import nodes

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate import calls, clocks
from prefixctl.lint.evaluate.frames import Macro, passed_as
from prefixctl.lint.evaluate.state import State, attribute_of
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
    map_causes,
    text_value,
)

_GLOBALS = frozenset(
    ["range", "dict", "lipsum", "cycler", "joiner", "namespace", "loop", "caller", "self", "super",
     "varargs", "kwargs", "raise_exception"]
)  # fmt: skip
_AT_THE_END = frozenset(["last", "revindex", "revindex0", "length", "nextitem"])
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
    if isinstance(bound, Value):
        return bound
    if isinstance(bound, Macro) or node.name in _GLOBALS:
        return EMPTY
    return state.external(node.name, node.lineno)


def _getattr(state: State, node: nodes.Getattr) -> Value:
    if isinstance(node.node, nodes.Name):
        if node.node.name == "loop":
            at_the_end = state.turns and node.attr in _AT_THE_END
            return (
                position_of_turn(state, f"loop.{node.attr}", node.lineno) if at_the_end else EMPTY
            )
        bound = state.scope.find(f"{node.node.name}.{node.attr}")
        if isinstance(bound, Value):
            return bound
    return _member(state, evaluate(state, node.node), node.attr)


def _getitem(state: State, node: nodes.Getitem) -> Value:
    base = evaluate(state, node.node)
    if isinstance(node.arg, nodes.Slice):
        return _slice(base, node.arg)
    if isinstance(node.arg, nodes.Const):
        if isinstance(node.arg.value, str):
            return _member(state, base, node.arg.value)
        return _first_message(state, base) if isinstance(node.arg.value, int) else base
    if isinstance(node.arg, nodes.Neg) and any(
        h.cause.kind is CauseKind.CONVERSATION for h in base.holes
    ):
        return position_of_turn(state, "messages[-1]", node.lineno)
    inner = evaluate(state, node.arg)
    if any(h.cause.kind is CauseKind.CONVERSATION for h in base.holes):
        return base
    return holes_value((*base.holes, *inner.holes))


def _slice(base: Value, part: nodes.Slice) -> Value:
    if (
        part.start is None
        and isinstance(part.stop, nodes.Const)
        and isinstance(part.stop.value, int)
    ):
        return clocks.cut(base, part.stop.value)
    return base


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
    options = [node.expr1] if node.expr2 is None else [node.expr1, node.expr2]
    given = _default_of_given(state, options, asked_for(node.test))
    if given is not None:
        return given
    values = [evaluate(state, n) for n in options]
    return choose(values if len(values) > 1 else [*values, EMPTY], condition(state, node.test))


def _or(state: State, node: nodes.Or) -> Value:
    return _first_given(state, [node.left, node.right])


def _default(state: State, node: nodes.Filter) -> Value:
    return _first_given(state, [n for n in (node.node, *node.args[:1]) if n is not None])


def _first_given(state: State, options: list[nodes.Expr]) -> Value:
    """``a or b``, ``a | default(b)``: a value that changes is printed wherever it is given."""
    given = _default_of_given(state, options, asked_for(options[0]))
    if given is not None:
        return given
    values = [evaluate(state, n) for n in options]
    if any(h.cause.volatility is not None for h in values[0].holes):
        return values[0]
    return choose(values)


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
        return ()
    if isinstance(test, (nodes.Name, nodes.Getattr, nodes.Getitem)):
        return _of_kind(evaluate(state, test), present=True)
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
        return tuple(h for h in value.holes if h.cause.kind is CauseKind.POSITION)
    return value.holes


def _concat(state: State, node: nodes.Concat) -> Value:
    return concat(evaluate(state, n) for n in node.nodes)


def _binary(state: State, node: nodes.BinExpr) -> Value:
    left, right = evaluate(state, node.left), evaluate(state, node.right)
    if isinstance(node, nodes.Add):
        return concat([left, right])
    if isinstance(node, nodes.Mod) and left.literal is not None:
        return concat([left, holes_value(right.holes)])
    return holes_value((*left.holes, *right.holes))


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
    """A comparison: what it reads, and where it asks for the place of a turn."""
    holes = [h for child in node.iter_child_nodes() for h in evaluate(state, child).holes]
    asked = isinstance(node, nodes.Compare)
    return holes_value(
        replace(h, origin=Site(node.lineno, h.origin.word))
        if asked and h.cause.kind is CauseKind.POSITION
        else h
        for h in holes
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
