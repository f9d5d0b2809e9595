"""The variables of a template while it is read: scopes, branches, macros, namespaces.

A name is bound to a cell, and what a cell holds is kept apart from the scopes. So a macro keeps the
scopes that it was written in, and still sees what was written to them later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from jinja2 import nodes

from prefixctl.lint.evaluate.syntax import Template
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Hole,
    Value,
    choose,
    concat,
    map_causes,
)

Frame = dict[str, int]
"""Names and their cells."""
WHOLE = ""
"""The attribute under which a record keeps what it prints as a whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Macro:
    """A macro, or the body of a ``call`` block.

    Attributes:
        name: Its name.
        node: Its statement, with arguments, defaults and body.
        template: The template that holds it.
        frames: The scopes that it was written in.
        isolated: Whether it sees none of the variables that a request brings.
    """

    name: str
    node: nodes.Macro | nodes.CallBlock
    template: Template
    frames: tuple[Frame, ...]
    isolated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A namespace, a mapping written out, an imported template: attributes with values."""

    attributes: Frame


Binding = Value | Macro | Record
Store = dict[int, Binding]


@dataclass(slots=True)
class Scope:
    """Nested frames, what their cells hold, and which cells were written to, in that order."""

    frames: list[Frame] = field(default_factory=lambda: [{}])
    store: Store = field(default_factory=dict)
    written: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def find(self, name: str) -> Binding | None:
        """What a name is bound to, from the inside out."""
        for frame in reversed(self.frames):
            cell = frame.get(name)
            if cell is not None and cell in self.store:
                return self.store[cell]
        return None

    def bind(self, name: str, binding: Binding) -> None:
        """Bind a name in the innermost frame."""
        self._put(self.frames[-1], name, binding)

    def record(self, members: Mapping[str, Binding]) -> Record:
        """A new record."""
        made = Record({})
        for name, binding in members.items():
            self.set_attribute(made, name, binding)
        return made

    def attribute(self, record: Record, name: str) -> Binding | None:
        """An attribute of a record, or None."""
        cell = record.attributes.get(name)
        return None if cell is None else self.store.get(cell)

    def set_attribute(self, record: Record, name: str, binding: Binding) -> None:
        """Set an attribute of a record."""
        self._put(record.attributes, name, binding)

    def forget(self, record: Record) -> None:
        """Let go of a record that nobody can reach any more."""
        for cell in record.attributes.values():
            self.store.pop(cell, None)

    def cell(self, name: str) -> int | None:
        """The cell that a name stands for."""
        return next((f[name] for f in reversed(self.frames) if f.get(name) in self.store), None)

    def extend(self, cell: int | None, added: Value) -> None:
        """Add to a list or a mapping that is changed in place."""
        bound = None if cell is None else self.store.get(cell)
        if cell is not None and isinstance(bound, Value):
            self.store[cell] = concat([bound, added])
            self.written.append(cell)
        elif isinstance(bound, Record):
            for inner in bound.attributes.values():
                self.extend(inner, added)

    @contextmanager
    def inner(self, frames: Sequence[Frame] | None = None) -> Iterator[None]:
        """A new innermost frame for a while: inside the open ones, or inside others."""
        outer, frame = self.frames, Frame()
        self.frames = [*(outer if frames is None else frames), frame]
        try:
            yield
        finally:
            self.frames = outer
            for cell in frame.values():
                self.store.pop(cell, None)

    def merge(
        self,
        branches: Sequence[Store],
        *,
        since: int,
        condition: tuple[Hole, ...],
        external: Callable[[str], Value],
        asked: Set[str] = frozenset(),
    ) -> None:
        """Continue behind a condition with what every branch has left.

        Args:
            branches: What the cells hold at the end of each branch.
            since: How much was written before the first of them.
            condition: The holes that decide.
            external: What a name stands for that the template has not set.
            asked: Names whose presence the condition asks for.
        """
        touched = dict.fromkeys(self.written[since:])
        self.store = dict(branches[0])
        for branch in branches[1:]:
            for cell in touched:
                if cell in branch and cell not in self.store:
                    self.store[cell] = branch[cell]
        merged: Store = {}
        for cell in touched:
            bound = [b.get(cell) for b in branches]
            if all(b is bound[0] for b in bound):
                continue
            made = self._merged([b for b in bound if b is not None], condition)
            if isinstance(made, Value) and any(b is None for b in bound):
                name = self._names[cell]
                clocks = any(h.cause.kind is CauseKind.CLOCK for h in made.holes)
                if clocks and name in asked:
                    made = passed_as(made, name)
                else:
                    made = choose([self._unset(name, cell, external), made], condition)
            merged[cell] = made
        self.store |= merged

    def _unset(self, name: str, cell: int, external: Callable[[str], Value]) -> Value:
        """What a name stands for where a branch has not set it: an outer or a given variable."""
        level = next((i for i, f in enumerate(self.frames) if f.get(name) == cell), None)
        if level is None:
            return EMPTY
        for frame in reversed(self.frames[:level]):
            bound = self.store.get(frame.get(name, -1))
            if bound is not None:
                return bound if isinstance(bound, Value) else EMPTY
        return external(name)

    def _put(self, frame: Frame, name: str, binding: Binding) -> None:
        cell = frame.get(name)
        if cell is None:
            cell = frame[name] = len(self._names)
            self._names.append(name)
        self.store[cell] = binding
        self.written.append(cell)

    def _merged(self, bound: Sequence[Binding], condition: tuple[Hole, ...]) -> Binding:
        records = [b for b in bound if isinstance(b, Record)]
        if records and len(records) == len(bound):
            names = dict.fromkeys(n for r in records for n in r.attributes)
            merged = {n: [self.attribute(r, n) or EMPTY for r in records] for n in names}
            return self.record({n: self._merged(m, condition) for n, m in merged.items()})
        if any(isinstance(b, Macro) for b in bound):
            return bound[0]
        return choose([self.whole(b) for b in bound], condition)

    def whole(self, bound: Binding) -> Value:
        """What a binding prints."""
        inner = self.attribute(bound, WHOLE) if isinstance(bound, Record) else bound
        return inner if isinstance(inner, Value) else EMPTY


def passed_as(value: Value, name: str) -> Value:
    """A default for a variable that a caller may give: its clocks are named after the variable."""

    def rename(cause: Cause) -> Cause:
        if cause.kind is CauseKind.CLOCK and cause.passable is None:
            return replace(cause, passable=name)
        return cause

    return map_causes(value, rename)
