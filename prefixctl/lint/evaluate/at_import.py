"""Values that source code reads once, when a module is imported or a process starts."""

from __future__ import annotations

from dataclasses import replace

from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate.value import Cause, CauseKind, Value, map_causes

AT_IMPORT = "it is read once, when the process starts, so replicas differ and it goes stale"


def as_read_at_import(value: Value) -> Value:
    """Clocks and random values that a module reads when it is imported: fixed for the process."""

    def fixed(cause: Cause) -> Cause:
        if cause.kind not in {CauseKind.CLOCK, CauseKind.RANDOM} or not is_computed(cause):
            return cause
        return replace(cause, volatility=Volatility.DEPLOYMENT, reason=AT_IMPORT, fixed=True)

    return map_causes(value, fixed, deciding=True)


def is_computed(cause: Cause) -> bool:
    """Whether a value is read by a call that the source itself makes."""
    return cause.fixed and cause.variable.endswith("()")
