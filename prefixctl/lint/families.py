"""The two families of rules: of prompts, which `lint` runs, and of settings, PFX6xx."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from prefixctl.lint.page import Documented
from prefixctl.lint.rules import all_rules
from prefixctl.lint.settings.rules import setting_rules


@cache
def all_ids() -> Mapping[str, str]:
    """Id or name of every rule of both families, in small letters, to its id."""
    rules: list[Documented] = [*all_rules(), *setting_rules()]
    return {word: r.id for r in rules for word in (r.id.lower(), r.name)}


@cache
def prompt_ids() -> frozenset[str]:
    """The ids of the rules for prompts, and for files of either kind."""
    return frozenset(r.id for r in all_rules())


@cache
def setting_ids() -> frozenset[str]:
    """The ids of the rules for engine settings."""
    return frozenset(r.id for r in setting_rules())
