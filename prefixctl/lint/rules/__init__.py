"""One rule per file. The order is that of their ids."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from prefixctl.lint.rule import Rule
from prefixctl.lint.rules import (
    pfx000_unreadable,
    pfx001_suppression,
    pfx101_clock,
    pfx102_random,
    pfx103_user,
    pfx104_tenant,
    pfx105_session,
    pfx106_request,
    pfx107_deployment,
    pfx108_history,
    pfx201_unordered,
    pfx301_short,
    pfx302_boundary,
    pfx303_mark,
    pfx304_white_space,
    pfx401_secret,
    pfx402_personal,
    pfx501_unbumped,
)

MODULES: tuple[ModuleType, ...] = (
    pfx000_unreadable,
    pfx001_suppression,
    pfx101_clock,
    pfx102_random,
    pfx103_user,
    pfx104_tenant,
    pfx105_session,
    pfx106_request,
    pfx107_deployment,
    pfx108_history,
    pfx201_unordered,
    pfx301_short,
    pfx302_boundary,
    pfx303_mark,
    pfx304_white_space,
    pfx401_secret,
    pfx402_personal,
    pfx501_unbumped,
)


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by id."""
    return tuple(m.RULE for m in MODULES)
