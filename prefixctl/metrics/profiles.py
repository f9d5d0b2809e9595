"""Profiles: which rules, made with which parameters, for how old an installation."""

from __future__ import annotations

from prefixctl.errors import UsageError
from prefixctl.metrics.alerts import alert_rules
from prefixctl.metrics.model import Group, RuleFile, Runbooks
from prefixctl.metrics.parameters import Parameters
from prefixctl.metrics.recording import recording_rules
from prefixctl.metrics.selector import Source
from prefixctl.yamlfile import did_you_mean

PROFILES = ("day1",)
"""day1: stock vLLM, no history needed."""


def build_rules(
    profile: str, source: Source, *, parameters: Parameters, runbooks: Runbooks
) -> RuleFile:
    """The rules of a profile.

    Raises:
        UsageError: If there is no such profile.
    """
    if profile not in PROFILES:
        raise UsageError(f"no profile '{profile}'", hint=did_you_mean(profile, PROFILES))
    interval = parameters.evaluation_interval
    return RuleFile(
        profile=profile,
        groups=(
            Group(
                name=f"prefix_cache_{profile}.recording",
                interval=interval,
                rules=recording_rules(source, parameters),
            ),
            Group(
                name=f"prefix_cache_{profile}.alerts",
                interval=interval,
                rules=alert_rules(source, parameters, runbooks),
            ),
        ),
    )
