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
from prefixctl.lint.evaluate.frames import Frame, Macro
from prefixctl.lint.evaluate.includes import import_macros, include, read_whole
from prefixctl.lint.evaluate.state import Loader, State, no_template
from prefixctl.lint.evaluate.syntax import Template
from prefixctl.lint.evaluate.value import (
    EMPTY,
    CauseKind,
    Hole,
    Site,
    Value,
    branched,
    choose,
    concat,
    hole_value,
    holes_value,
    loop,
    map_causes,
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
    )
    for name, text in (constants or {}).items():
        state.scope.bind(name, text_value(text))
    try:
        return read_whole(state, template)
    except RecursionError as exc:
        raise UnreadableError("nested too deeply") from exc


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
    before, role = state.scope.snapshot(), state.role
    options: list[Value] = []
    ends: list[list[Frame]] = []
    tests: list[tuple[Hole, ...]] = []
    asked: set[str] = set()
    for test, body in branches:
        if isinstance(test, nodes.Const) and not test.value:
            continue
        state.scope.frames = [dict(f) for f in before]
        if test is not None:
            tests.append(condition(state, test))
            asked |= asked_for(test)
            state.role = _picked_role(test) or role
        options.append(run(state, body))
        ends.append(state.scope.frames)
        state.role = role
        if isinstance(test, nodes.Const):
            break
    holes = tuple(dict.fromkeys(h for t in tests for h in t))
    state.scope.frames = ends[0]
    if len(ends) > 1:
        given = {name: state.external(name, node.lineno) for name in asked}
        state.scope.merge(ends, condition=holes, given=given)
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


def _for(state: State, node: nodes.For) -> Value:
    source = evaluate(state, node.iter)
    kinds = {h.cause.kind for h in source.holes}
    turns = state.chat and CauseKind.CONVERSATION in kinds
    frame: Frame = dict.fromkeys(_targets(node.target), holes_value(source.holes))
    state.scope.frames.append(frame)
    state.turns += turns
    try:
        body = run(state, node.body)
    finally:
        state.scope.frames.pop()
        state.turns -= turns
    other = run(state, node.else_) if node.else_ else EMPTY
    dynamic = any(h.cause.volatility is not None and h.cause.volatility.is_dynamic
                  for h in source.holes)  # fmt: skip
    rounds = loop(body, dynamic=dynamic, conversation=turns and _prints_turns(body))
    if body.parts and _in_key_order(node.iter):
        rounds = concat([_order_holes(source, node), rounds])
    return choose([rounds, other]) if other.parts else rounds


def _prints_turns(body: Value) -> bool:
    return any(h.cause.kind is CauseKind.CONVERSATION and h.site is not None for h in body.holes)


def _in_key_order(source: nodes.Node) -> bool:
    """Whether a loop goes through a mapping in the order of its keys."""
    if isinstance(source, nodes.Filter):
        return source.name == "items"
    return (
        isinstance(source, nodes.Call)
        and isinstance(source.node, nodes.Getattr)
        and source.node.attr == "items"
    )


def _order_holes(source: Value, node: nodes.For) -> Value:
    changed = map_causes(holes_value(source.holes), calls.unordered)
    holes = [h for h in changed.holes if h.cause.kind is CauseKind.ORDER]
    if not holes:
        return EMPTY
    place = Site(node.lineno, word="for")
    return hole_value(Hole(holes[0].cause, place, place))


def _targets(target: nodes.Node) -> list[str]:
    if isinstance(target, nodes.Name):
        return [target.name]
    return [n.name for n in target.find_all(nodes.Name)]


def _assign(state: State, node: nodes.Assign) -> Value:
    made = node.node
    named = isinstance(made, nodes.Call) and isinstance(made.node, nodes.Name) and made.node.name
    if isinstance(made, nodes.Call) and named == "namespace":
        if isinstance(node.target, nodes.Name):
            _make_namespace(state, node.target.name, made)
        return EMPTY
    _store(state, node.target, evaluate(state, made), made)
    return EMPTY


def _make_namespace(state: State, name: str, made: nodes.Call) -> None:
    state.scope.bind(name, EMPTY)
    for keyword in made.kwargs:
        state.scope.bind(f"{name}.{keyword.key}", evaluate(state, keyword.value))


def _store(state: State, target: nodes.Node, value: Value, source: nodes.Node) -> None:
    if isinstance(target, nodes.NSRef):
        if state.turns and not value.holes and _counts_turns(source):
            value = position_of_turn(state, f"{target.name}.{target.attr}", target.lineno)
        state.scope.bind_attribute(target.name, target.attr, value)
    elif isinstance(target, nodes.Name):
        state.scope.bind(target.name, value)
    elif isinstance(target, nodes.Tuple):
        for item in target.items:
            _store(state, item, holes_value(value.holes), source)


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
    value = _scoped(state, node.body)
    if node.filter is not None:
        value = concat([value, holes_value(evaluate(state, node.filter).holes)])
    _store(state, node.target, value, node)
    return EMPTY


def _macro(state: State, node: nodes.Macro) -> Value:
    state.scope.bind(node.name, Macro(node, state.template))
    return EMPTY


def _call_block(state: State, node: nodes.CallBlock) -> Value:
    inner = _scoped(state, node.body)
    output = evaluate(state, node.call)
    return concat([output, inner])


def _filter_block(state: State, node: nodes.FilterBlock) -> Value:
    return calls.filtered(state, node.filter, _scoped(state, node.body), evaluate)


def _scoped(state: State, body: list[nodes.Node]) -> Value:
    state.scope.frames.append({})
    try:
        return run(state, body)
    finally:
        state.scope.frames.pop()


def _with(state: State, node: nodes.With) -> Value:
    values = [evaluate(state, v) for v in node.values]
    state.scope.frames.append({})
    try:
        for target, value in zip(node.targets, values, strict=True):
            _store(state, target, value, node)
        return run(state, node.body)
    finally:
        state.scope.frames.pop()


def _body(state: State, node: nodes.Scope) -> Value:
    return _scoped(state, node.body)


def _block(state: State, node: nodes.Block) -> Value:
    block, template = state.blocks.get(node.name, (node, state.template))
    state.scope.frames.append({})
    try:
        return state.run_in(template, block.body)
    finally:
        state.scope.frames.pop()


def _statement(state: State, node: nodes.ExprStmt) -> Value:
    evaluate(state, node.node)
    return EMPTY


_HANDLERS: dict[type[nodes.Node], Callable[..., Value]] = {
    nodes.Output: _output,
    nodes.If: _if,
    nodes.For: _for,
    nodes.Assign: _assign,
    nodes.AssignBlock: _assign_block,
    nodes.Macro: _macro,
    nodes.CallBlock: _call_block,
    nodes.FilterBlock: _filter_block,
    nodes.With: _with,
    nodes.Block: _block,
    nodes.Scope: _body,
    nodes.ScopedEvalContextModifier: _body,
    nodes.ExprStmt: _statement,
    nodes.Include: include,
    nodes.FromImport: import_macros,
}
