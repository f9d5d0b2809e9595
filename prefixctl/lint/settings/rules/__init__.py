"""One settings rule per file. The order is that of their ids."""

from __future__ import annotations

from types import ModuleType

from prefixctl.lint.settings.rule import SettingRule
from prefixctl.lint.settings.rules import (
    pfx601_caching_off,
    pfx602_usage_hidden,
    pfx603_weak_hash,
    pfx604_shared_salt,
    pfx605_replicas_differ,
    pfx606_block_size,
    pfx607_context_short,
    pfx608_speculation,
    pfx609_target,
    pfx610_secret,
)

SETTING_MODULES: tuple[ModuleType, ...] = (
    pfx601_caching_off,
    pfx602_usage_hidden,
    pfx603_weak_hash,
    pfx604_shared_salt,
    pfx605_replicas_differ,
    pfx606_block_size,
    pfx607_context_short,
    pfx608_speculation,
    pfx609_target,
    pfx610_secret,
)


def setting_rules() -> tuple[SettingRule, ...]:
    """Every settings rule, by id."""
    return tuple(m.RULE for m in SETTING_MODULES)
