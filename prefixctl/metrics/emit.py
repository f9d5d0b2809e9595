"""YAML text of rule files and of their unit tests, the same bytes on every run.

Only what promtool 2.42 knows is written: no group labels, no query_offset.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import yaml

from prefixctl.metrics.model import AlertRule, RecordingRule, RuleFile
from prefixctl.metrics.promql import duration
from prefixctl.metrics.scenarios import AlertTest, ExprTest, Scenario


class _Dumper(yaml.SafeDumper):
    """Lists stand two columns in, texts of several lines as literal blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


def rules_name(profile: str) -> str:
    """File name of the rules of a profile."""
    return f"{profile}.rules.yaml"


def tests_name(profile: str) -> str:
    """File name of the unit tests of a profile."""
    return f"{profile}.tests.yaml"


def rules_text(rules: RuleFile, *, header: str) -> str:
    """A Prometheus rule file. ``header`` says how it was made; each line becomes a comment."""
    groups = [
        {
            "name": group.name,
            "interval": duration(group.interval),
            "rules": [_rule(rule) for rule in group.rules],
        }
        for group in rules.groups
    ]
    return _document({"groups": groups}, header)


def tests_text(rules: RuleFile, scenarios: tuple[Scenario, ...], *, header: str) -> str:
    """Unit tests for ``promtool test rules``, to lie beside the rule file."""
    return _document(
        {
            "rule_files": [rules_name(rules.profile)],
            "evaluation_interval": duration(rules.groups[0].interval),
            "group_eval_order": [group.name for group in rules.groups],
            "tests": [_scenario(one) for one in scenarios],
        },
        header,
    )


def _rule(rule: RecordingRule | AlertRule) -> dict[str, Any]:
    if isinstance(rule, RecordingRule):
        return {"record": rule.record, "expr": rule.expr}
    hold = {"for": duration(rule.hold)} if rule.hold else {}
    return {
        "alert": rule.alert,
        "expr": rule.expr,
        **hold,
        "labels": {"severity": rule.severity.value},
        "annotations": {
            "summary": rule.summary,
            "description": rule.description,
            "runbook_url": rule.runbook_url,
        },
    }


def _scenario(scenario: Scenario) -> dict[str, Any]:
    alerts = [_alert_test(one) for one in scenario.alerts]
    exprs = [_expr_test(one) for one in scenario.exprs]
    return {
        "name": scenario.name,
        "interval": "1m",
        "input_series": [
            {"series": one.series, "values": one.values} for one in scenario.input_series
        ],
        **({"alert_rule_test": alerts} if alerts else {}),
        **({"promql_expr_test": exprs} if exprs else {}),
    }


def _alert_test(test: AlertTest) -> dict[str, Any]:
    expected = [
        {
            "exp_labels": {**one.labels, "severity": test.rule.severity.value},
            "exp_annotations": {
                "summary": test.rule.summary,
                "description": test.rule.describe(one.labels, one.value),
                "runbook_url": test.rule.runbook_url,
            },
        }
        for one in test.firing
    ]
    silent_or_firing = {"exp_alerts": expected} if expected else {}
    return {"eval_time": _at(test.minute), "alertname": test.rule.alert, **silent_or_firing}


def _expr_test(test: ExprTest) -> dict[str, Any]:
    samples = [{"labels": one.labels, "value": one.value} for one in test.samples]
    return {"expr": test.expr, "eval_time": _at(test.minute), "exp_samples": samples}


def _at(minute: int) -> str:
    return duration(timedelta(minutes=minute))


def _document(value: dict[str, Any], header: str) -> str:
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    body = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
        default_flow_style=False,
    )
    return f"{comment}{body}"
