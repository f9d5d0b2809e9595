"""Python source: prompt strings, formatted or joined, and message lists. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from prefixctl.lint.document import Block, Document, Doubt, Syntax
from prefixctl.lint.evaluate.at_import import as_read_at_import, is_computed
from prefixctl.lint.evaluate.python_calls import call_value
from prefixctl.lint.evaluate.python_code import MAX_SIZE, Env, dotted, evaluate
from prefixctl.lint.evaluate.value import (
    EMPTY,
    CauseKind,
    Value,
    choose,
    concat,
    holes_value,
    text_value,
)
from prefixctl.lint.readers import likeness
from prefixctl.lint.readers.python_looks import is_text
from prefixctl.lint.readers.python_scopes import Candidate, Scope, scopes
from prefixctl.lint.readers.python_source import PythonSource, parse_python
from prefixctl.lint.readers.strings import literal_value, static_text
from prefixctl.lint.source import Origin, Source

MAX_PROMPTS = 500
"""Prompts of one file at most; more were written by a program."""


def read_python(source: Source) -> list[Document]:
    """Read the prompts of a Python file.

    Strings that a module or a class holds are taken as they are. Inside a function, the values of
    local names are followed; what other code joins to a string is not known.

    Raises:
        UnreadableError: If it is no Python.
    """
    parsed = parse_python(source)
    constants: dict[str, Value] = {}
    documents: list[Document] = []
    for scope in scopes(parsed.tree):
        env = _env(parsed, scope, constants)
        for candidate, value, text in _values(scope, env, constants):
            if len(documents) < MAX_PROMPTS and _is_prompt(candidate, value, text):
                documents.append(_document(source, scope, candidate, value))
    return documents


def _env(parsed: PythonSource, scope: Scope, constants: dict[str, Value]) -> Env:
    known = {name: value for name, value in constants.items() if value.parts}
    return Env(
        place=parsed.place,
        fields=parsed.fields,
        literal=lambda node: literal_value(parsed.source, parsed.literal(node)),
        call=call_value,
        names=known,
        own=_written_down(parsed.tree),
        at_import=scope.at_import,
    )


def _written_down(tree: ast.Module) -> frozenset[str]:
    """The names, and attributes, that a file binds to dict displays with members."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {dotted(t).rsplit(".", 1)[-1] for t in targets if node.value.keys}
    return frozenset(found - {""})


def _values(
    scope: Scope, env: Env, constants: dict[str, Value]
) -> Iterator[tuple[Candidate, Value, str]]:
    """The candidates of a scope with what they print and their text."""
    bound: dict[str, tuple[Value, str]] = {}
    used: set[str] = set()
    for name, writes in scope.bindings.items():
        values = [(w, evaluate(env, w.node)) for w in writes]
        first = choose([v for w, v in values if not w.added])
        added = [_maybe(v) if w.guarded else v for w, v in values if w.added]
        value = concat([first, *added])
        if scope.at_import:
            constants.setdefault(name, _constant(value))
            if constants[name].parts:
                env.names = {**env.names, name: constants[name]}
        elif value.parts and value.size <= MAX_SIZE and _says_something(value):
            env.names = {**env.names, name: value}
        if any(is_text(w.node) for w in writes):
            bound[name] = (value, "".join(static_text(v) for _, v in values))
    for candidate in scope.candidates:
        used |= candidate.names_read
        value = evaluate(env, candidate.node)
        joined = (bound[n][1] for n in candidate.names_read if n in bound)
        yield candidate, value, "".join([static_text(value), *joined])
    for name, (value, text) in bound.items():
        if scope.at_import or name not in used:
            node = scope.bindings[name][0].node
            yield Candidate(node=node, names=(*scope.names, name)), value, text


def _constant(value: Value) -> Value:
    """What a module's name stands for: its text, or a clock that was read when it was imported.

    The placeholders in its text are reported where the text is, once.
    """
    text = static_text(value)
    if text.strip():
        return text_value(text)
    read = as_read_at_import(value)
    return read if any(is_computed(h.cause) for h in read.holes) else EMPTY


def _maybe(value: Value) -> Value:
    """What is added under a condition: its text is not there for sure, so nobody can lose it."""
    return choose([holes_value(value.holes), EMPTY])


def _says_something(value: Value) -> bool:
    return bool(static_text(value)) or any(
        h.cause.volatility is not None or h.cause.kind is CauseKind.ORDER for h in value.holes
    )


def _is_prompt(candidate: Candidate, value: Value, text: str) -> bool:
    named = candidate.whole or likeness.names_a_prompt(*candidate.names)
    if not named and any(likeness.names_another_thing(n) for n in candidate.names[-1:]):
        return False
    return likeness.is_prompt(text, named=named, holes=bool(value.holes))


def _document(source: Source, scope: Scope, candidate: Candidate, value: Value) -> Document:
    doubt = Doubt.NONE
    if scope.at_import:
        value = as_read_at_import(value)
    else:
        doubt = Doubt.PROMPT if candidate.whole else Doubt.PIECE
    block = Block(
        text=source.text, syntax=Syntax.PLAIN, origin=Origin(source), value=value, doubt=doubt
    )
    return Document(path=source.path, format="python", blocks=(block,))
