"""Declared scopes of variables, for what a prompt prints in whichever syntax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from prefixctl.core.prompt import Parameter
from prefixctl.lint.evaluate.state import declared
from prefixctl.lint.evaluate.value import Cause, CauseKind, Value, map_causes

_NO_VARIABLES = frozenset([CauseKind.CONVERSATION, CauseKind.POSITION, CauseKind.SYSTEM])


def with_declared(value: Value, parameters: Mapping[str, Parameter]) -> Value:
    """The value with the declared scope of each variable that it prints or reads.

    A declaration holds for a variable with all its attributes, or for one of them: ``user`` or
    ``user.name``. A clock that the prompt reads itself is no variable.
    """

    def change(cause: Cause) -> Cause:
        if cause.kind in _NO_VARIABLES or (cause.fixed and cause.passable is None):
            return cause
        path = (cause.passable or cause.variable).split(".")
        for count in range(len(path), 0, -1):
            parameter = parameters.get(".".join(path[:count]))
            if parameter is not None:
                return replace(declared(parameter), variable=cause.variable)
        return cause

    return map_causes(value, change, deciding=True) if parameters else value
