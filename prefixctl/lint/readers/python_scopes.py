"""The scopes of a Python file: which names are bound to strings, and where strings stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prefixctl.lint.evaluate.python_calls import MEMBERS
from prefixctl.lint.readers.python_looks import (
    SILENT_CALLS,
    SILENT_KEYWORDS,
    called,
    is_text,
    messages_of,
)

_GUARDS = (ast.If, ast.For, ast.AsyncFor, ast.While)
_Bodies = list[tuple[Sequence[ast.stmt], bool, tuple[str, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One assignment to a name.

    Attributes:
        node: The value, or what is added to the value.
        added: Whether it is added: ``x += more``, ``x = x + more``, ``x.append(more)``.
        guarded: Whether that happens under a condition or in a loop.
    """

    node: ast.expr
    added: bool = False
    guarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An expression that may be a prompt.

    Attributes:
        node: The expression.
        names: What it is called, from the outside in.
        whole: Whether it is a whole request: a list of messages.
    """

    node: ast.expr
    names: tuple[str, ...] = ()
    whole: bool = False

    @property
    def names_read(self) -> set[str]:
        """The names that it reads."""
        return {n.id for n in ast.walk(self.node) if isinstance(n, ast.Name)}


@dataclass(slots=True)
class Scope:
    """A module, a class or a function.

    Attributes:
        names: What its strings are called: the function's name.
        at_import: Whether its statements run once, when the module is imported.
        bindings: What is assigned to each name, in the order of the file.
        candidates: Strings that are returned or handed on.
    """

    names: tuple[str, ...]
    at_import: bool
    bindings: dict[str, list[Write]] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)

    def bind(self, name: str, write: Write) -> None:
        """Note an assignment."""
        self.bindings.setdefault(name, []).append(write)


def scopes(tree: ast.Module) -> Iterator[Scope]:
    """The scopes of a file: the module first, then classes and functions, from the outside in."""
    pending: _Bodies = [(tree.body, True, ())]
    while pending:
        body, at_import, names = pending.pop(0)
        scope = Scope(names, at_import)
        _read(scope, body, pending, guarded=False)
        yield scope


def _read(scope: Scope, body: Sequence[ast.stmt], pending: _Bodies, *, guarded: bool) -> None:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            pending.append((statement.body, False, (statement.name,)))
        elif isinstance(statement, ast.ClassDef):
            pending.append((statement.body, scope.at_import, ()))
        else:
            _statement(scope, statement, guarded=guarded)
            for inner in _bodies(statement):
                inside = guarded or isinstance(statement, _GUARDS)
                _read(scope, inner, pending, guarded=inside)


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(statement, name, None)
        if isinstance(inner, list):
            yield inner
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def _statement(scope: Scope, statement: ast.stmt, *, guarded: bool) -> None:
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        _assigned(scope, statement, guarded=guarded)
    elif isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
        appended = _appended(statement.value)
        if appended is None:
            _candidates(scope, statement.value, scope.names)
        else:
            name, node = appended
            scope.bind(name, Write(node=node, added=True, guarded=guarded))
    elif isinstance(statement, ast.For) and not scope.at_import:
        _looped(scope, statement, guarded=guarded)
    elif isinstance(statement, ast.Return) and statement.value is not None:
        _candidates(scope, statement.value, scope.names)


def _assigned(
    scope: Scope, statement: ast.Assign | ast.AnnAssign | ast.AugAssign, *, guarded: bool
) -> None:
    value = statement.value
    if value is None:
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if len(targets) == 1 and isinstance(targets[0], ast.Name) and messages_of(value) is None:
        name = targets[0].id
        rest = _behind_itself(value, name)
        added = isinstance(statement, ast.AugAssign) or rest is not None
        if not scope.at_import or is_text(value) or isinstance(value, ast.Call):
            scope.bind(name, Write(node=rest or value, added=added, guarded=guarded))
        if is_text(value):
            return
    _candidates(scope, value, (*scope.names, *(_target_name(t) for t in targets)))


def _looped(scope: Scope, statement: ast.For, *, guarded: bool) -> None:
    """The variables of a loop through a mapping: they come in the order of its keys.

    They are bound ahead of what the body adds to, and behind the mapping.
    """
    listed = statement.iter
    if not (isinstance(listed, ast.Call) and isinstance(listed.func, ast.Attribute)):
        return
    if listed.func.attr not in MEMBERS or listed.args:
        return
    read = {n.id for n in ast.walk(listed) if isinstance(n, ast.Name)}
    names = list(scope.bindings)
    place = max((i + 1 for i, n in enumerate(names) if n in read), default=0)
    before = {n: scope.bindings[n] for n in names[:place]}
    own = {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)} - set(names)
    made = {n: [Write(node=listed, added=False, guarded=guarded)] for n in sorted(own)}
    scope.bindings = before | made | {n: scope.bindings[n] for n in names[place:]}


def _behind_itself(value: ast.expr, name: str) -> ast.expr | None:
    """What ``x = x + more`` adds."""
    inner = value
    while isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add):
        if isinstance(inner.left, ast.Name) and inner.left.id == name:
            return value.right if isinstance(value, ast.BinOp) else None
        inner = inner.left
    return None


def _target_name(target: ast.expr) -> str:
    if isinstance(target, ast.Attribute):
        return target.attr
    if isinstance(target, ast.Subscript):
        key = target.slice.value if isinstance(target.slice, ast.Constant) else ""
        return f"{_target_name(target.value)}_{key!s}"
    return target.id if isinstance(target, ast.Name) else ""


def _appended(node: ast.expr) -> tuple[str, ast.expr] | None:
    """The name and the text of ``name.append(text)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    holder = node.func.value
    if node.func.attr != "append" or not isinstance(holder, ast.Name) or len(node.args) != 1:
        return None
    return (holder.id, node.args[0]) if is_text(node.args[0]) else None


def _candidates(scope: Scope, node: ast.expr, names: tuple[str, ...]) -> None:
    """Note the largest strings and message lists in an expression."""
    pending = [(node, names)]
    while pending:
        current, path = pending.pop()
        listed = messages_of(current)
        if listed is not None:
            found = Candidate(node=listed, names=(*path, "messages"), whole=True)
            scope.candidates.append(found)
        elif is_text(current):
            scope.candidates.append(Candidate(node=current, names=path))
        else:
            pending += reversed(list(_parts(current, path)))


def _parts(node: ast.expr, names: tuple[str, ...]) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    """The expressions inside one, with what they are called."""
    if isinstance(node, ast.Lambda) or (
        isinstance(node, ast.Call) and called(node) in SILENT_CALLS
    ):
        return
    if isinstance(node, ast.Call):
        yield from ((a, names) for a in node.args)
        for keyword in node.keywords:
            if keyword.arg not in SILENT_KEYWORDS:
                yield keyword.value, (*names, keyword.arg or "")
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            word = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
            if word not in SILENT_KEYWORDS:
                yield value, (*names, word)
    else:
        children = ast.iter_child_nodes(node)
        yield from ((c, names) for c in children if isinstance(c, ast.expr))
