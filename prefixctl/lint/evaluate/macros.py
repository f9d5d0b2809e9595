"""Macros and ``call`` blocks: what they print when they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jinja2 import nodes

from prefixctl.lint.evaluate.frames import WHOLE, Binding, Macro, Record
from prefixctl.lint.evaluate.state import State
from prefixctl.lint.evaluate.value import EMPTY, Site, Value, concat, derived, moved_to

Evaluate = Callable[[State, nodes.Node], Value]

MAX_CALLS = 24
"""Macros inside macros at most."""


def binding(state: State, node: nodes.Node | None) -> Binding | None:
    """The macro, record or value that a name or an attribute of a record stands for."""
    if isinstance(node, nodes.Name):
        return state.scope.find(node.name)
    if isinstance(node, nodes.Getattr):
        holder, name = binding(state, node.node), node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        holder, name = binding(state, node.node), str(node.arg.value)
    else:
        return None
    return state.scope.attribute(holder, name) if isinstance(holder, Record) else None


def given_as(state: State, node: nodes.Node, evaluate: Evaluate) -> Binding:
    """What an expression hands on: a macro or a record itself, else its value."""
    bound = binding(state, node)
    return evaluate(state, node) if bound is None else bound


def arguments_of(node: nodes.Call | nodes.Filter | nodes.Test) -> list[nodes.Node]:
    """All arguments, named ones and unpacked ones too."""
    extra = [n for n in (node.dyn_args, node.dyn_kwargs) if n is not None]
    return [*node.args, *(k.value for k in node.kwargs), *extra]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The arguments of a call: in order, by name, and what may be any of them."""

    ordered: tuple[Binding, ...]
    named: Mapping[str, Binding]
    extra: Value


def expand(
    state: State, node: nodes.Call, macro: Macro, evaluate: Evaluate, caller: Macro | None = None
) -> Value:
    """The output of a macro. One that calls itself adds nothing but what its arguments bring."""
    given = _given(state, node, evaluate)
    if id(macro.node) in state.calls or len(state.calls) >= MAX_CALLS:
        bound = (*given.ordered, *given.named.values())
        return derived([*(state.scope.whole(b) for b in bound), given.extra])
    outer = state.calls, state.isolated
    state.calls, state.isolated = (*state.calls, id(macro.node)), macro.isolated
    try:
        with state.scope.inner(macro.frames):
            _bind(state, macro, given, evaluate)
            if caller is not None:
                state.scope.bind("caller", caller)
            output = state.run_in(macro.template, macro.node.body)
    finally:
        state.calls, state.isolated = outer
    here = macro.template is state.main
    return output if here else moved_to(output, Site(node.lineno, macro.name))


def _given(state: State, node: nodes.Call, evaluate: Evaluate) -> _Given:
    ordered = list(node.args)
    unpacked = [node.dyn_kwargs]
    if isinstance(node.dyn_args, (nodes.List, nodes.Tuple)):
        ordered += node.dyn_args.items
    else:
        unpacked.append(node.dyn_args)
    return _Given(
        ordered=tuple(given_as(state, n, evaluate) for n in ordered),
        named={k.key: given_as(state, k.value, evaluate) for k in node.kwargs},
        extra=derived(evaluate(state, n) for n in unpacked if n is not None),
    )


def _bind(state: State, macro: Macro, given: _Given, evaluate: Evaluate) -> None:
    """Bind the arguments of a call, ``varargs`` and ``kwargs``."""
    parameters = [a.name for a in macro.node.args]
    defaults = dict(zip(parameters[::-1], macro.node.defaults[::-1], strict=False))
    for index, name in enumerate(parameters):
        ordered = index < len(given.ordered)
        bound = given.ordered[index] if ordered else given.named.get(name)
        if bound is None:
            default = defaults.get(name)
            value = EMPTY if default is None else evaluate(state, default)
            bound = concat([given.extra, value])
        state.scope.bind(name, bound)
    varargs = [state.scope.whole(b) for b in given.ordered[len(parameters) :]]
    state.scope.bind("varargs", concat([*varargs, given.extra]))
    rest = {k: v for k, v in given.named.items() if k not in parameters}
    printed = concat([*(state.scope.whole(b) for b in rest.values()), given.extra])
    state.scope.bind("kwargs", state.scope.record({**rest, WHOLE: printed}))
