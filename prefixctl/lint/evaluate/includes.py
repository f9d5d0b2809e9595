"""Templates inside templates: include, import, extends and blocks."""

from __future__ import annotations

from jinja2 import nodes

from prefixctl.core.findings import Confidence
from prefixctl.lint.evaluate.expressions import evaluate
from prefixctl.lint.evaluate.frames import Frame, Record
from prefixctl.lint.evaluate.state import State
from prefixctl.lint.evaluate.syntax import Template, parse
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Hole,
    Site,
    Value,
    derived,
    hole_value,
    moved_to,
)
from prefixctl.lint.source import UnreadableError

MAX_INCLUDES = 16


def read_whole(state: State, template: Template) -> Value:
    """The output of a whole template. A child prints its parent, with its own blocks in it."""
    outer, state.top = state.top, len(state.scope.frames)
    try:
        return _read(state, template)
    finally:
        state.top = outer


def _read(state: State, template: Template) -> Value:
    body = template.tree.body
    extends = next((n for n in body if isinstance(n, nodes.Extends)), None)
    parent = None if extends is None else _loaded(state, extends.template)
    if extends is None or parent is None:
        return state.run_in(template, body)
    for own in template.tree.find_all(nodes.Block):
        state.blocks.setdefault(own.name, []).append((own, template))
    silent = [n for n in body if not isinstance(n, (nodes.Output, nodes.Block, nodes.Extends))]
    state.run_in(template, silent)
    return _inside(state, parent, Site(extends.lineno, word="extends"))


def block(state: State, node: nodes.Block) -> Value:
    """The output of a block: of the outermost child's version of it."""
    versions = state.blocks.setdefault(node.name, [])
    if not any(known is node for known, _ in versions):
        versions.append((node, state.template))
    return block_version(state, node.name, 0)


def block_version(state: State, name: str, version: int) -> Value:
    """The output of one version of a block. Only one that says so sees the loop around it."""
    versions = state.blocks.get(name, [])
    if version >= len(versions) or (name, version) in state.calls:
        return EMPTY
    node, template = versions[version]
    outer = state.block, state.calls
    state.block, state.calls = (name, version), (*state.calls, (name, version))
    frames = state.scope.frames if node.scoped else state.scope.frames[: state.top]
    try:
        with state.scope.inner(frames):
            return state.run_in(template, node.body)
    finally:
        state.block, state.calls = outer


def super_block(state: State) -> Value:
    """The output of the parent's version of the block that is open."""
    name, version = state.block
    return block_version(state, name, version + 1)


def own_block(state: State, name: str) -> Value:
    """The output of ``self.name()``."""
    if name not in state.blocks:
        for found in state.template.tree.find_all(nodes.Block):
            if found.name == name:
                state.blocks[name] = [(found, state.template)]
    return block_version(state, name, 0)


def include(state: State, node: nodes.Include) -> Value:
    """The output of an included template; unknown if it was not found."""
    included = _loaded(state, node.template)
    place = Site(node.lineno, word="include")
    if included is not None:
        outer = state.isolated
        state.isolated = outer or not node.with_context
        try:
            frames = None if node.with_context else ()
            return _inside(state, included, place, frames)
        finally:
            state.isolated = outer
    chosen = derived([evaluate(state, node.template)])
    if chosen.parts:
        return chosen
    name = node.template.value if isinstance(node.template, nodes.Const) else "include"
    cause = Cause(str(name), CauseKind.UNKNOWN, None, Confidence.LOW, "it was not found")
    return hole_value(Hole(cause, place, place))


def _inside(
    state: State, template: Template, place: Site, frames: tuple[Frame, ...] | None = None
) -> Value:
    """The output of another template, with its holes at the statement that brings it in."""
    calls_before = state.calls
    state.calls = (*calls_before, f"template at line {place.line}")
    try:
        with state.scope.inner(frames):
            value = read_whole(state, template)
    finally:
        state.calls = calls_before
    return moved_to(value, place) if state.template is state.main else value


def import_template(state: State, node: nodes.Import) -> Value:
    """Bind another template as a whole; nothing is printed."""
    module = _module(state, node.template, with_context=node.with_context)
    if module is not None:
        state.scope.bind(node.target, module)
    return EMPTY


def import_names(state: State, node: nodes.FromImport) -> Value:
    """Bind macros and variables of another template; nothing is printed."""
    module = _module(state, node.template, with_context=node.with_context)
    for wanted in node.names if module is not None else ():
        source, alias = wanted if isinstance(wanted, tuple) else (wanted, wanted)
        bound = None if module is None else state.scope.attribute(module, source)
        if bound is not None:
            state.scope.bind(alias, bound)
    return EMPTY


def _module(state: State, name: nodes.Expr, *, with_context: bool) -> Record | None:
    """What a template sets at its top level. It sees a request's variables only if it is told."""
    template = _loaded(state, name)
    if template is None:
        return None
    outer = state.scope.frames, state.isolated, state.calls
    frame: Frame = {}
    state.scope.frames = [*(outer[0] if with_context else ()), frame]
    state.isolated = state.isolated or not with_context
    state.calls = (*state.calls, "import")
    try:
        read_whole(state, template)
    finally:
        state.scope.frames, state.isolated, state.calls = outer
    return Record(frame)


def _loaded(state: State, name: nodes.Expr) -> Template | None:
    """The first template of that name, or of these names, that there is."""
    names = name.items if isinstance(name, (nodes.List, nodes.Tuple)) else [name]
    if len(state.calls) > MAX_INCLUDES:
        return None
    for wanted in names:
        if not isinstance(wanted, nodes.Const) or not isinstance(wanted.value, str):
            return None
        source = state.loader(wanted.value)
        try:
            if source is not None:
                return parse(source, chat=state.chat)
        except UnreadableError:
            return None
    return None
