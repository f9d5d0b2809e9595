"""Templates inside templates: include, import, extends and blocks."""

from __future__ import annotations

from jinja2 import nodes

from prefixctl.core.findings import Confidence
from prefixctl.lint.evaluate.frames import Macro
from prefixctl.lint.evaluate.state import State
from prefixctl.lint.evaluate.syntax import Template, parse
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Hole,
    Site,
    Value,
    hole_value,
    moved_to,
)
from prefixctl.lint.source import UnreadableError

MAX_INCLUDES = 16


def read_whole(state: State, template: Template) -> Value:
    """The output of a whole template. A child prints its parent, with its own blocks in it."""
    body = template.tree.body
    extends = next((n for n in body if isinstance(n, nodes.Extends)), None)
    if extends is None:
        return state.run_in(template, body)
    parent = _loaded(state, extends.template)
    if parent is None:
        return state.run_in(template, body)
    for block in template.tree.find_all(nodes.Block):
        state.blocks.setdefault(block.name, (block, template))
    silent = [n for n in body if not isinstance(n, (nodes.Output, nodes.Block, nodes.Extends))]
    state.run_in(template, silent)
    return _inside(state, parent, Site(extends.lineno, word="extends"))


def include(state: State, node: nodes.Include) -> Value:
    """The output of an included template; unknown if it was not found."""
    included = _loaded(state, node.template)
    place = Site(node.lineno, word="include")
    if included is not None:
        return _inside(state, included, place)
    name = node.template.value if isinstance(node.template, nodes.Const) else "include"
    cause = Cause(str(name), CauseKind.UNKNOWN, None, Confidence.LOW, "it was not found")
    return hole_value(Hole(cause, place, place))


def _inside(state: State, template: Template, place: Site) -> Value:
    """The output of another template, with its holes at the statement that brings it in."""
    calls_before = state.calls
    state.calls = (*calls_before, f"template at line {place.line}")
    state.scope.frames.append({})
    try:
        value = read_whole(state, template)
    finally:
        state.scope.frames.pop()
        state.calls = calls_before
    return moved_to(value, place) if state.template is state.main else value


def import_macros(state: State, node: nodes.FromImport) -> Value:
    """Bind the macros of another template; nothing is printed."""
    module = _loaded(state, node.template)
    if module is None:
        return EMPTY
    macros = {m.name: m for m in module.tree.body if isinstance(m, nodes.Macro)}
    for wanted in node.names:
        source, alias = wanted if isinstance(wanted, tuple) else (wanted, wanted)
        if source in macros:
            state.scope.bind(alias, Macro(macros[source], module))
    return EMPTY


def _loaded(state: State, name: nodes.Expr) -> Template | None:
    if not isinstance(name, nodes.Const) or not isinstance(name.value, str):
        return None
    if len(state.calls) > MAX_INCLUDES:
        return None
    source = state.loader(name.value)
    try:
        return None if source is None else parse(source, chat=state.chat)
    except UnreadableError:
        return None
