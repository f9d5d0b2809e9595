"""Loops: how many rounds there are, what each of them sees, and what they leave behind."""

from __future__ import annotations

from jinja2 import nodes

from prefixctl.core.findings import Confidence
from prefixctl.lint.evaluate import order
from prefixctl.lint.evaluate.expressions import condition, evaluate, position_of_turn
from prefixctl.lint.evaluate.frames import Binding, Record, Store
from prefixctl.lint.evaluate.macros import binding
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
    concat,
    derived,
    hole_value,
    holes_value,
    loop,
    map_causes,
)

MAX_REPEATED = 3
"""Loops inside loops that are gone through twice; deeper ones repeat with those around them."""
_AT_THE_END = ("last", "revindex", "revindex0", "length")
_FROM_THE_START = ("first", "index", "index0", "depth", "depth0")
_LITERALS = (nodes.List, nodes.Tuple, nodes.Dict)


def read_for(state: State, node: nodes.For) -> Value:
    """What a loop prints."""
    source = evaluate(state, node.iter)
    turns = state.chat and any(h.cause.kind is CauseKind.CONVERSATION for h in source.holes)
    rounds = _Rounds(state, node, source, turns=turns)
    body = rounds.read()
    count = rounds.count
    repeated = loop(
        body, dynamic=bool(count), conversation=turns and _prints_turns(body), source=count
    )
    if body.parts:
        repeated = concat([_order_hole(state, source, node), repeated])
    return _or_else(state, node, repeated, count)


def _or_else(state: State, node: nodes.For, repeated: Value, count: tuple[Hole, ...]) -> Value:
    """A loop, or what stands behind its ``else`` where there is no round."""
    if not node.else_ or (_has_rounds(node) and node.test is None and not _may_leave(node)):
        return repeated
    before, since = dict(state.scope.store), len(state.scope.written)
    other = state.run(state, node.else_)
    after = state.scope.store
    state.scope.merge([before, after], since=since, condition=count, external=lambda _: EMPTY)
    return choose([repeated, other], count) if other.parts else repeated


def _may_leave(node: nodes.For) -> bool:
    """Whether a round may be left early: Jinja2 counts such a round as none."""
    return any(True for _ in node.find_all((nodes.Break, nodes.Continue)))


def _has_rounds(node: nodes.For) -> bool:
    return isinstance(node.iter, _LITERALS) and bool(node.iter.items)


class _Rounds:
    """The rounds of one loop.

    Attributes:
        count: The holes that decide how many there are.
    """

    def __init__(self, state: State, node: nodes.For, source: Value, *, turns: bool) -> None:
        self._state = state
        self._node = node
        self._turns = turns
        self._item = concat([SOME, derived([source])])
        known = isinstance(node.iter, _LITERALS)
        self.count = () if known else _dynamic(source.reads)

    def read(self) -> Value:
        """One round: the second of two, if rounds see what earlier ones have left."""
        before, since = dict(self._state.scope.store), len(self._state.scope.written)
        self._state.loops += 1
        try:
            body = self._round()
            if self._turns or not self._has_left(before, since):
                return body
            self._merge(before, since)
            if self._state.loops <= MAX_REPEATED:
                body = self._round()
                self._merge(before, since)
            return body
        finally:
            self._state.loops -= 1

    def _has_left(self, before: Store, since: int) -> bool:
        scope = self._state.scope
        written = set(scope.written[since:])
        return any(scope.store.get(c) is not before[c] for c in written if c in before)

    def _merge(self, before: Store, since: int) -> None:
        if _has_rounds(self._node) and not self.count:
            return
        scope = self._state.scope
        branches = [before, scope.store]
        scope.merge(branches, since=since, condition=self.count, external=lambda _: EMPTY)

    def _round(self) -> Value:
        state, node = self._state, self._node
        outer = state.deciding, state.leaving
        state.deciding = state.leaving = ()
        state.turns += self._turns
        try:
            with state.scope.inner():
                for index, name in enumerate(_targets(node.target)):
                    state.scope.bind(name, concat([SOME] * index + [self._item]))
                if node.test is not None:
                    self._add(condition(state, node.test))
                own = self._loop()
                state.scope.bind("loop", own)
                body = state.run(state, node.body)
                self._add(state.leaving)
                state.scope.forget(own)
        finally:
            state.deciding, state.leaving = outer
            state.turns -= self._turns
        return body

    def _add(self, holes: tuple[Hole, ...]) -> None:
        self.count = tuple(dict.fromkeys((*self.count, *_dynamic(holes))))

    def _loop(self) -> Record:
        """The variable ``loop``."""
        state, line = self._state, self._node.lineno
        members: dict[str, Binding] = {"previtem": self._item, "nextitem": self._item}
        end = concat([SOME, holes_value(self.count)])
        for name in _AT_THE_END:
            moves = position_of_turn(state, f"loop.{name}", line) if self._turns else end
            members[name] = moves
        if self._turns:
            members["nextitem"] = position_of_turn(state, "loop.nextitem", line)
        elif not state.turns:
            members |= {name: _counted(name, line) for name in _FROM_THE_START}
        return state.scope.record(members)


def _counted(name: str, line: int) -> Value:
    cause = Cause(
        f"loop.{name}", CauseKind.SETTLED, None, Confidence.HIGH, "it counts the rounds", fixed=True
    )
    return hole_value(Hole(cause, Site(line, name)))


def _dynamic(holes: tuple[Hole, ...]) -> tuple[Hole, ...]:
    return tuple(
        h for h in holes if h.cause.volatility is not None and h.cause.volatility.is_dynamic
    )


def _prints_turns(body: Value) -> bool:
    return any(h.cause.kind is CauseKind.CONVERSATION and h.site is not None for h in body.holes)


def _order_hole(state: State, source: Value, node: nodes.For) -> Value:
    """A hole for the order of the rounds, where it is the client's."""
    if _in_key_order(state, node.iter):
        changed = map_causes(holes_value(source.holes), order.mapping_unordered)
    elif state.chat:
        return EMPTY
    else:
        changed = _tools_in_order(node, source)
    holes = [h for h in changed.holes if h.cause.kind is CauseKind.ORDER]
    if not holes:
        return EMPTY
    place = Site(node.lineno, word="for")
    return hole_value(Hole(holes[0].cause, place, place))


def _tools_in_order(node: nodes.For, source: Value) -> Value:
    """The source of a loop over a list, with what the body says of the shape of tools."""
    read = _members_read(node)
    nested = order.MEMBER in read
    value = map_causes(holes_value(source.holes), order.list_unordered)
    if nested:
        value = map_causes(value, order.left_as_it_was)
    flat = "name" in read
    return map_causes(value, lambda cause: order.with_shape(cause, nested=nested, flat=flat))


def _members_read(node: nodes.For) -> set[str]:
    """The members of a loop's variable that its body reads."""
    own = set(_targets(node.target))
    read = set()
    for body in node.body:
        for found in body.find_all(nodes.Getattr):
            if isinstance(found.node, nodes.Name) and found.node.name in own:
                read.add(found.attr)
        for item in body.find_all(nodes.Getitem):
            if isinstance(item.node, nodes.Name) and item.node.name in own:
                read.add(str(item.arg.value) if isinstance(item.arg, nodes.Const) else "")
    return read


def _in_key_order(state: State, source: nodes.Node) -> bool:
    """Whether a loop goes through a mapping that comes from outside in the order of its keys."""
    if isinstance(source, nodes.Filter):
        if source.name != "items":
            return False
        mapping = source.node
    elif (
        isinstance(source, nodes.Call)
        and isinstance(source.node, nodes.Getattr)
        and source.node.attr in {"items", "keys", "values"}
    ):
        mapping = source.node.node
    else:
        return False
    return not isinstance(mapping, nodes.Dict) and not isinstance(binding(state, mapping), Record)


def _targets(target: nodes.Node) -> list[str]:
    if isinstance(target, nodes.Name):
        return [target.name]
    return [n.name for n in target.find_all(nodes.Name)]


def leave(state: State, node: nodes.Node) -> Value:  # noqa: ARG001 - a handler
    """``break`` and ``continue``: the conditions around them decide how the loop goes on."""
    state.leaving = (*state.leaving, *state.deciding)
    return EMPTY
