"""The pages of the settings rules, from the docstrings of their modules."""

from __future__ import annotations

from prefixctl.lint.page import RulePage, make_page
from prefixctl.lint.settings.rules import SETTING_MODULES


def setting_pages() -> tuple[RulePage, ...]:
    """The pages of all settings rules, by id."""
    return tuple(make_page(m.RULE, m.__doc__) for m in SETTING_MODULES)
