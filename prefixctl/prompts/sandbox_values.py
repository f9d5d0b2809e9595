"""Values to render a template with, made from the ways in which it uses its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from jinja2 import nodes

from prefixctl.prompts.sandbox_frames import Returning

_CALL = "()"
_ITEM = "[]"
_CLOCK_PARTS = frozenset(
    ["strftime", "isoformat", "hour", "minute", "second", "year", "month", "day", "weekday",
     "date", "time", "timestamp", "isoweekday", "ctime"]
)  # fmt: skip
_MAPPING_METHODS = frozenset(["items", "keys", "values"])
_GLOBALS = frozenset(
    ["range", "dict", "lipsum", "cycler", "joiner", "namespace", "loop", "caller", "self", "super",
     "varargs", "kwargs", "raise_exception", "strftime_now"]
)  # fmt: skip
_WORDS = ("alpha", "Zulu", "9 more", "(omega)")
"""No two begin with the same character."""

_COUNTING_FILTERS = frozenset(["length", "count", "wordcount"])
_LENGTHS = (2, 0, 3)


class Stillness(StrEnum):
    """What values are that do not differ from one set to the next.

    PLAIN: a text. COMPARED: the first constant that a condition compares them with. ABSENT: not
    given.
    """

    PLAIN = "plain"
    COMPARED = "compared"
    ABSENT = "absent"


Changes = Callable[[str], bool]
"""Whether the value at a dotted path differs between two requests."""


@dataclass(slots=True)
class _Use:
    """How a value is used: by attribute, call, item, as a number, as a condition, against what."""

    members: dict[str, _Use] = field(default_factory=dict)
    number: bool = False
    tested: bool = False
    constants: list[Any] = field(default_factory=list)

    def member(self, name: str) -> _Use:
        return self.members.setdefault(name, _Use())


def generate_values(
    trees: Sequence[nodes.Template],
    *,
    changes: Changes,
    stillness: Stillness,
    index: int,
    now: datetime,
    unknown: Changes = lambda _: False,
) -> dict[str, Any]:
    """Values for all variables that a template and what it includes read and do not set.

    Any two indices give values that differ from their first character on, and lists of another
    length, where they change at all; a value that a condition compares with constants takes them
    in turn.

    Args:
        trees: The syntax trees.
        changes: Which values differ from one index to the next.
        stillness: What the others are.
        index: Which set of values.
        now: What clock values show.
        unknown: Of which values nobody knows whether they change: where one of them is a condition
            as it is, every second set has it empty.
    """
    maker = _Maker(changes=changes, stillness=stillness, index=index, now=now, unknown=unknown)
    uses = _uses(trees)
    if stillness is Stillness.ABSENT:
        uses = {n: u for n, u in uses.items() if u.members or changes(n)}
    return {name: maker.value(use, name) for name, use in uses.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    changes: Changes
    stillness: Stillness
    index: int
    now: datetime
    unknown: Changes

    def value(self, use: _Use, path: str) -> Any:
        inner = use.members
        if _CALL in inner:
            return Returning(result=self.value(inner[_CALL], path))
        if _CLOCK_PARTS & set(inner):
            return self.now
        if _ITEM in inner:
            item = self.value(inner[_ITEM], path)
            return [item] * (_LENGTHS[self.index % len(_LENGTHS)] if self.changes(path) else 2)
        if inner:
            return {name: self.value(inner[name], f"{path}.{name}") for name in inner}
        return self._leaf(use, path)

    def _leaf(self, use: _Use, path: str) -> Any:
        changes = self.changes(path)
        index = self.index if changes else int(self.stillness is Stillness.COMPARED)
        if use.constants and index:
            return use.constants[(index - 1) % len(use.constants)]
        index = index if changes else 0
        if use.tested and index % 2 and self.unknown(path):
            return ""
        if use.number:
            return 7 + index
        return f"{_WORDS[index % len(_WORDS)]} {path}"


def _uses(trees: Sequence[nodes.Template]) -> dict[str, _Use]:
    own = set(_GLOBALS).union(*map(_set_names, trees))
    uses: dict[str, _Use] = {}
    for tree in trees:
        for name in _read_names(tree):
            if name not in own:
                uses.setdefault(name, _Use())
    for tree in trees:
        _note_uses(tree, uses)
    return uses


def _note_uses(tree: nodes.Template, uses: dict[str, _Use]) -> None:
    loops = {
        loop.target.name: loop for loop in tree.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name)
    }  # fmt: skip
    finder = _Finder(uses, loops)
    called = {id(call.node) for call in tree.find_all(nodes.Call)}
    for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Call, nodes.For)):
        if id(node) not in called:
            finder.find(node.iter if isinstance(node, nodes.For) else node)
    for loop in loops.values():
        found = finder.find(loop.iter)
        if found is not None and not found.members:
            found.member(_ITEM)
    for chosen in tree.find_all((nodes.If, nodes.CondExpr)):
        _note_tests(finder, getattr(chosen, "test"))  # noqa: B009 - both have one
    for compare in tree.find_all(nodes.Compare):
        _note_constants(finder, compare)


@dataclass(slots=True)
class _Finder:
    """Finds the use of an expression, and makes it on the way."""

    uses: dict[str, _Use]
    loops: dict[str, nodes.For]
    open: set[str] = field(default_factory=set)

    def find(self, node: nodes.Node) -> _Use | None:
        if isinstance(node, nodes.Filter) and node.node is not None:
            return self.find(node.node)
        if isinstance(node, nodes.Name):
            return self._name(node.name)
        if isinstance(node, nodes.Getattr):
            base = self.find(node.node)
            return None if base is None else base.member(node.attr)
        if isinstance(node, nodes.Getitem):
            return self._item(node)
        return self._call(node) if isinstance(node, nodes.Call) else None

    def _name(self, name: str) -> _Use | None:
        loop = self.loops.get(name)
        if loop is None or name in self.open:
            return self.uses.get(name)
        self.open.add(name)
        try:
            source = self.find(loop.iter)
        finally:
            self.open.discard(name)
        return None if source is None else source.member(_ITEM)

    def _item(self, node: nodes.Getitem) -> _Use | None:
        base = self.find(node.node)
        if base is None or isinstance(node.arg, nodes.Slice):
            return base
        key = node.arg.value if isinstance(node.arg, nodes.Const) else None
        return base.member(key if isinstance(key, str) else _ITEM)

    def _call(self, node: nodes.Call) -> _Use | None:
        callee = node.node
        method = callee.attr if isinstance(callee, nodes.Getattr) else ""
        base = self.find(callee.node if isinstance(callee, nodes.Getattr) else callee)
        if base is None:
            return None
        if not method:
            return base.member(_CALL)
        if method == "get" and node.args and isinstance(node.args[0], nodes.Const):
            return base.member(str(node.args[0].value))
        if method in _MAPPING_METHODS | _CLOCK_PARTS:
            base.member("first" if method in _MAPPING_METHODS else method)
            return None
        return base if hasattr(str, method) else base.member(method).member(_CALL)


def _note_tests(finder: _Finder, test: nodes.Node) -> None:
    """Note what decides a condition by being there or not."""
    if isinstance(test, nodes.Not):
        _note_tests(finder, test.node)
    elif isinstance(test, (nodes.And, nodes.Or)):
        _note_tests(finder, test.left)
        _note_tests(finder, test.right)
    elif isinstance(test, (nodes.Name, nodes.Getattr, nodes.Getitem)):
        use = finder.find(test)
        if use is not None and not use.members:
            use.tested = True


def _note_constants(finder: _Finder, compare: nodes.Compare) -> None:
    sides = [compare.expr, *(o.expr for o in compare.ops)]
    constants = [c for side in sides for c in _constants(side)]
    for side in sides:
        counted = isinstance(side, nodes.Filter) and side.name in _COUNTING_FILTERS
        use = None if counted else finder.find(side)
        if use is None or use.members:
            continue
        for constant in constants:
            if isinstance(constant, (int, float)) and not isinstance(constant, bool):
                use.number = True
            if isinstance(constant, str) or use.number:
                use.constants.append(constant)


def _constants(node: nodes.Node) -> Iterator[Any]:
    if isinstance(node, nodes.Const):
        yield node.value
    elif isinstance(node, (nodes.List, nodes.Tuple)):
        yield from (n.value for n in node.items if isinstance(n, nodes.Const))


def _read_names(tree: nodes.Template) -> Iterator[str]:
    return (n.name for n in tree.find_all(nodes.Name) if n.ctx == "load")


def _set_names(tree: nodes.Template) -> set[str]:
    own = set(_GLOBALS)
    own |= {n.name for n in tree.find_all(nodes.Name) if n.ctx != "load"}
    own |= {m.name for m in tree.find_all(nodes.Macro)}
    own |= {n.name for n in tree.find_all(nodes.NSRef)}
    for imported in tree.find_all(nodes.FromImport):
        own |= {n[1] if isinstance(n, tuple) else n for n in imported.names}
    return own | {i.target for i in tree.find_all(nodes.Import)}
