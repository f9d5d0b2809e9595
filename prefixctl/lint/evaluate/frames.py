"""The variables of a template while it is read: scopes, branches, macros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    holes_value,
    map_causes,
)


@dataclass(frozen=True, slots=True, eq=False)
class Macro:
    """A macro and the template that holds it."""

    node: nodes.Macro
    template: Template


Binding = Value | Macro
Frame = dict[str, Binding]


@dataclass(slots=True)
class Scope:
    """Nested frames. A namespace's attributes are kept as ``name.attribute``."""

    frames: list[Frame] = field(default_factory=lambda: [{}])

    def find(self, name: str) -> Binding | None:
        """What a name is bound to, from the inside out."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        return None

    def bind(self, name: str, value: Binding) -> None:
        """Bind a name in the innermost frame."""
        self.frames[-1][name] = value

    def bind_attribute(self, name: str, attribute: str, value: Value) -> None:
        """Set an attribute in the frame that holds the namespace."""
        for frame in reversed(self.frames):
            if name in frame:
                frame[f"{name}.{attribute}"] = value
                return
        self.frames[-1][f"{name}.{attribute}"] = value

    def extend(self, name: str, added: Value) -> None:
        """Add to a list that is changed in place."""
        for frame in reversed(self.frames):
            bound = frame.get(name)
            if isinstance(bound, Value):
                frame[name] = concat([bound, holes_value(added.holes)])
                return

    def snapshot(self) -> list[Frame]:
        """A copy to go back to."""
        return [dict(f) for f in self.frames]

    def merge(
        self,
        branches: Sequence[list[Frame]],
        *,
        condition: tuple[Hole, ...],
        given: Mapping[str, Value],
    ) -> None:
        """Continue behind a condition with what every branch has left.

        Args:
            branches: The frames at the end of each branch.
            condition: The holes that decide.
            given: Names whose presence the condition asks for, with what a caller may give.
        """
        merged: list[Frame] = []
        for level in range(len(self.frames)):
            frames = [b[level] for b in branches]
            merged.append(_merge_frame(frames, condition, given))
        self.frames = merged


def _merge_frame(
    frames: Sequence[Frame], condition: tuple[Hole, ...], given: Mapping[str, Value]
) -> Frame:
    names = dict.fromkeys(name for frame in frames for name in frame)
    return {name: _merge_name(name, frames, condition, given) for name in names}


def _merge_name(
    name: str, frames: Sequence[Frame], condition: tuple[Hole, ...], given: Mapping[str, Value]
) -> Binding:
    bound = [f.get(name) for f in frames]
    first = next(b for b in bound if b is not None)
    if isinstance(first, Macro) or all(b is first for b in bound):
        return first
    values = [b for b in bound if isinstance(b, Value)]
    if len(values) == len(bound):
        return choose(values, condition)
    if name not in given:
        return choose([*values, EMPTY], condition)
    if any(h.cause.kind is CauseKind.CLOCK for v in values for h in v.holes):
        return passed_as(choose(values, condition), name)
    return choose([given[name], *values], condition)


def passed_as(value: Value, name: str) -> Value:
    """A default for a variable that a caller may give: its clocks are named after the variable."""

    def rename(cause: Cause) -> Cause:
        if cause.kind is CauseKind.CLOCK and cause.passable is None:
            return replace(cause, passable=name)
        return cause

    return map_causes(value, rename)
