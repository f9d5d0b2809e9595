"""What a rule file is made of. Text comes later, in `emit`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

_RECORDED = re.compile(r"[a-z_]+:[a-z_][a-z0-9_]*:[a-z0-9_]+")
_ALERT = re.compile(r"PrefixCache[A-Z][A-Za-z0-9]*")
_PLACEHOLDER = re.compile(r"\{\{ (?:\$labels\.(?P<label>\w+)|\$value\b[^}]*) \}\}")


class AlertSeverity(StrEnum):
    """Who is called: somebody now, somebody today, nobody."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A query that is computed ahead.

    Attributes:
        record: ``level:metric:operations``; the level names the labels that are left.
        expr: PromQL.
    """

    record: str
    expr: str

    def __post_init__(self) -> None:
        if not _RECORDED.fullmatch(self.record):
            raise ValueError(f"'{self.record}' is not level:metric:operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """A condition that somebody is told of.

    Attributes:
        alert: CamelCase name with the common prefix.
        expr: PromQL; every series of the result is one alert.
        hold: How long the condition must hold first.
        severity: Who is called.
        summary: One sentence, the same for every alert of the rule.
        description: The case at hand, as a Prometheus template.
        runbook_url: The page that says what to do.
    """

    alert: str
    expr: str
    hold: timedelta
    severity: AlertSeverity
    summary: str
    description: str
    runbook_url: str

    def __post_init__(self) -> None:
        if not _ALERT.fullmatch(self.alert):
            raise ValueError(f"'{self.alert}' is not CamelCase behind PrefixCache")
        if "{{" in self.summary:
            raise ValueError(f"the summary of {self.alert} must be the same for every alert")

    def describe(self, labels: dict[str, str], value: str) -> str:
        """The description as Prometheus expands it, given the value as its template prints it."""

        def expand(match: re.Match[str]) -> str:
            return labels.get(match["label"], "") if match["label"] else value

        return _PLACEHOLDER.sub(expand, self.description)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated in order, at one timestamp."""

    name: str
    interval: timedelta
    rules: tuple[RecordingRule | AlertRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """The groups of one profile.

    Attributes:
        profile: Its name; the file name begins with it.
        groups: In the order in which they depend on one another.
    """

    profile: str
    groups: tuple[Group, ...]

    @property
    def recording_rules(self) -> tuple[RecordingRule, ...]:
        """All recording rules, in order."""
        return tuple(r for g in self.groups for r in g.rules if isinstance(r, RecordingRule))

    @property
    def alerts(self) -> tuple[AlertRule, ...]:
        """All alert rules, in order."""
        return tuple(r for g in self.groups for r in g.rules if isinstance(r, AlertRule))

    def alert(self, name: str) -> AlertRule:
        """The alert rule of that name."""
        return next(rule for rule in self.alerts if rule.alert == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbooks:
    """Where the pages lie. A base that ends in ``#`` is one page with a heading for each alert."""

    base: str

    def url(self, alert: str) -> str:
        """The address for one alert."""
        return self.base + (alert.lower() if self.base.endswith("#") else f"{alert}.md")
