"""The output of Jinja2 statements: what is printed, in which order, under which condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jinja2 import nodes

from prefixctl.core.prompt import Parameter
from prefixctl.lint.evaluate import calls
from prefixctl.lint.evaluate.expressions import (
    asked_for,
    condition,
    evaluate,
    position_of_turn,
)
from prefixctl.lint.evaluate.frames import WHOLE, Binding, Macro, Record, Store
from prefixctl.lint.evaluate.includes import (
    block,
    import_names,
    import_template,
    include,
    own_block,
    read_whole,
    super_block,
)
from prefixctl.lint.evaluate.loops import leave, read_for
from prefixctl.lint.evaluate.macros import binding, expand, given_as
from prefixctl.lint.evaluate.state import Loader, State, no_template
from prefixctl.lint.evaluate.syntax import Template
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Hole,
    Site,
    Value,
    branched,
    concat,
    derived,
    printed_at,
    text_value,
)
from prefixctl.lint.source import UnreadableError

_SYSTEM_ROLES = frozenset(["system", "developer"])
_RETRIEVED_ROLES = frozenset(["context", "document", "documents", "retrieved", "knowledge", "rag"])


def read_template(
    template: Template,
    *,
    chat: bool = False,
    parameters: Mapping[str, Parameter] | None = None,
    constants: Mapping[str, str] | None = None,
    loader: Loader = no_template,
) -> Value:
    """What a template prints.

    Args:
        template: The parsed template.
        chat: Whether it is a model's chat template: ``messages`` is then the conversation.
        parameters: Declared parameters.
        constants: Names, dotted ones too, that stand for a text.
        loader: Finds included templates.

    Raises:
        UnreadableError: If it is nested too deeply or takes too long to read.
    """
    state = State(
        template=template,
        main=template,
        chat=chat,
        parameters=parameters or {},
        loader=loader,
        run=run,
        parent_block=super_block,
        own_block=own_block,
    )
    for name, text in (constants or {}).items():
        _bind_constant(state, name, text_value(text))
    try:
        return read_whole(state, template)
    except RecursionError as exc:
        raise UnreadableError("nested too deeply") from exc


def _bind_constant(state: State, name: str, value: Value) -> None:
    """Bind a name; of a dotted one, an attribute."""
    holder, dot, attribute = name.partition(".")
    if not dot:
        state.scope.bind(name, value)
        return
    record = state.scope.find(holder)
    if not isinstance(record, Record):
        record = state.scope.record({})
        state.scope.bind(holder, record)
    state.scope.set_attribute(record, attribute, value)


def run(state: State, body: list[nodes.Node]) -> Value:
    """The output of statements."""
    printed = []
    for node in body:
        state.step()
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            printed.append(handler(state, node))
    return concat(printed)


def _output(state: State, node: nodes.Output) -> Value:
    printed = []
    for part in node.nodes:
        if isinstance(part, nodes.TemplateData):
            printed.append(text_value(part.data))
            continue
        value = evaluate(state, part)
        if state.template is state.main:
            site = Site(part.lineno, printed=state.main.prints.get(id(part)))
            value = printed_at(value, site)
        printed.append(value)
    return concat(printed)


def _if(state: State, node: nodes.If) -> Value:
    branches: list[tuple[nodes.Node | None, list[nodes.Node]]] = [(node.test, node.body)]
    branches += [(e.test, e.body) for e in node.elif_]
    branches.append((None, node.else_))
    before, role, open_before = state.scope.store, state.role, state.deciding
    since = len(state.scope.written)
    options: list[Value] = []
    ends: list[Store] = []
    tests: list[tuple[Hole, ...]] = []
    asked: set[str] = set()
    for test, body in branches:
        if isinstance(test, nodes.Const) and not test.value:
            continue
        state.scope.store = dict(before)
        if test is not None:
            tests.append(condition(state, test))
            asked |= asked_for(test)
            state.role = _picked_role(test) or role
            state.deciding = (*state.deciding, *tests[-1])
        options.append(run(state, body))
        ends.append(state.scope.store)
        state.role = role
        if isinstance(test, nodes.Const):
            break
    state.deciding = open_before
    state.scope.store = ends[0]
    if len(ends) > 1:
        state.scope.merge(
            ends,
            since=since,
            condition=tuple(dict.fromkeys(h for t in tests for h in t)),
            external=lambda name: state.external(name, node.lineno),
            asked=asked,
        )
    return branched(tuple(options), tuple(tests))


def _picked_role(test: nodes.Node) -> str:
    """The role of the message that a condition picks."""
    roles: set[str] = set()
    for compare in [test] if isinstance(test, nodes.Compare) else test.find_all(nodes.Compare):
        roles |= _compared_roles(compare)
    if roles and roles <= _SYSTEM_ROLES:
        return "system"
    return "retrieved" if roles and roles <= _RETRIEVED_ROLES else ""


def _compared_roles(node: nodes.Node) -> set[str]:
    if not isinstance(node, nodes.Compare) or node.ops[0].op not in {"eq", "in"}:
        return set()
    subject = node.expr
    asks = (isinstance(subject, nodes.Getattr) and subject.attr == "role") or (
        isinstance(subject, nodes.Getitem)
        and isinstance(subject.arg, nodes.Const)
        and subject.arg.value == "role"
    )
    if not asks:
        return set()
    constants = [c.value for c in node.ops[0].expr.find_all(nodes.Const)]
    if isinstance(node.ops[0].expr, nodes.Const):
        constants.append(node.ops[0].expr.value)
    return {c for c in constants if isinstance(c, str)}


def _assign(state: State, node: nodes.Assign) -> Value:
    _store(state, node.target, _made(state, node.node), node.node)
    return EMPTY


def _made(state: State, node: nodes.Node) -> Binding:
    """What an assignment binds: a namespace and a mapping keep their members apart."""
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
        named = {k.key: _made(state, k.value) for k in node.kwargs}
        if node.node.name == "namespace":
            for given in node.args:
                bound = _made(state, given)
                if isinstance(bound, Record):
                    known = ((n, state.scope.attribute(bound, n)) for n in bound.attributes)
                    named = {n: b for n, b in known if b is not None} | named
            return state.scope.record(named)
        if node.node.name == "dict" and not node.args and node.dyn_kwargs is None:
            return state.scope.record({**named, WHOLE: evaluate(state, node)})
    if isinstance(node, nodes.Dict) and all(isinstance(p.key, nodes.Const) for p in node.items):
        members = {str(p.key.value): _made(state, p.value) for p in node.items}  # type: ignore[attr-defined]
        return state.scope.record({**members, WHOLE: evaluate(state, node)})
    return given_as(state, node, evaluate)


def _store(state: State, target: nodes.Node, bound: Binding, source: nodes.Node) -> None:
    if isinstance(target, nodes.NSRef):
        if state.turns and isinstance(bound, Value) and not bound.holes and _counts_turns(source):
            bound = position_of_turn(state, f"{target.name}.{target.attr}", target.lineno)
        holder = state.scope.find(target.name)
        if isinstance(holder, Record):
            state.scope.set_attribute(holder, target.attr, bound)
        else:
            state.scope.bind(target.name, state.scope.record({target.attr: bound}))
    elif isinstance(target, nodes.Name):
        state.scope.bind(target.name, bound)
    elif isinstance(target, nodes.Tuple):
        _store_all(state, target, bound, source)


def _store_all(state: State, target: nodes.Tuple, bound: Binding, source: nodes.Node) -> None:
    """``a, b = c, d``: one by one, or what all of them may have."""
    if isinstance(source, nodes.Tuple) and len(source.items) == len(target.items):
        values = [evaluate(state, n) for n in source.items]
    else:
        values = [derived([state.scope.whole(bound)])] * len(target.items)
    for item, value in zip(target.items, values, strict=True):
        _store(state, item, value, source)


def _counts_turns(node: nodes.Node) -> bool:
    """Whether an expression is made from the number of the turn in the conversation."""
    reads = [node] if isinstance(node, nodes.Getattr) else node.find_all(nodes.Getattr)
    return any(
        isinstance(n, nodes.Getattr)
        and isinstance(n.node, nodes.Name)
        and n.node.name == "loop"
        and n.attr in {"index", "index0"}
        for n in reads
    )


def _assign_block(state: State, node: nodes.AssignBlock) -> Value:
    with state.scope.inner():
        value = run(state, node.body)
    if node.filter is not None:
        value = calls.filtered_by(state, node.filter, value, evaluate)
    _store(state, node.target, value, node)
    return EMPTY


def _macro(state: State, node: nodes.Macro) -> Value:
    macro = Macro(node.name, node, state.template, tuple(state.scope.frames), state.isolated)
    state.scope.bind(node.name, macro)
    return EMPTY


def _call_block(state: State, node: nodes.CallBlock) -> Value:
    frames = tuple(state.scope.frames)
    caller = Macro("caller", node, state.template, frames, state.isolated)
    target = binding(state, node.call.node)
    if isinstance(target, Macro):
        return expand(state, node.call, target, evaluate, caller)
    with state.scope.inner():
        inner = run(state, node.body)
    return concat([evaluate(state, node.call), inner])


def _filter_block(state: State, node: nodes.FilterBlock) -> Value:
    with state.scope.inner():
        inner = run(state, node.body)
    return calls.filtered_by(state, node.filter, inner, evaluate)


def _with(state: State, node: nodes.With) -> Value:
    values = [_made(state, v) for v in node.values]
    with state.scope.inner():
        for target, bound, made in zip(node.targets, values, node.values, strict=True):
            _store(state, target, bound, made)
        return run(state, node.body)


def _body(state: State, node: nodes.Scope) -> Value:
    with state.scope.inner():
        return run(state, node.body)


def _statement(state: State, node: nodes.ExprStmt) -> Value:
    evaluate(state, node.node)
    return EMPTY


_HANDLERS: dict[type[nodes.Node], Callable[..., Value]] = {
    nodes.Output: _output,
    nodes.If: _if,
    nodes.For: read_for,
    nodes.Break: leave,
    nodes.Continue: leave,
    nodes.Assign: _assign,
    nodes.AssignBlock: _assign_block,
    nodes.Macro: _macro,
    nodes.CallBlock: _call_block,
    nodes.FilterBlock: _filter_block,
    nodes.With: _with,
    nodes.Block: block,
    nodes.Scope: _body,
    nodes.ScopedEvalContextModifier: _body,
    nodes.ExprStmt: _statement,
    nodes.Include: include,
    nodes.Import: import_template,
    nodes.FromImport: import_names,
}
