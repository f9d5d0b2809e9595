"""A plan: which prefixes to compute, for whom, the most important one first."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from prefixctl.config import Name
from prefixctl.errors import InputError
from prefixctl.yamlfile import StrictModel, load_model, read_bytes


class PlannedPrefix(StrictModel):
    """One prompt and its namespaces."""

    prompt: str = Field(description="Name of a published prompt, or name@version.")
    groups: tuple[Name, ...] = Field(default=(), description="Share groups to compute it for.")
    tenants: tuple[Name, ...] = Field(default=(), description="Tenants to compute it for.")


class Plan(StrictModel):
    """Prefixes in order; without groups and tenants a prefix has no salt."""

    prefixes: tuple[PlannedPrefix, ...] = Field(
        min_length=1, description="The most important first."
    )


def load_plan(path: Path) -> Plan:
    """Read a plan, YAML or JSON.

    Raises:
        InputError: If it is missing, or no plan; with the line.
    """
    data = read_bytes(path, InputError, hint="give a file with `prefixes:`")
    return load_model(Plan, data, str(path))[0]
