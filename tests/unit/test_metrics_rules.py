"""The rules of day1: names, form, unit tests for every alert, files."""

import re
import stat
from pathlib import Path

import pytest
import yaml

from prefixctl.api import rules as api
from prefixctl.config import Config
from prefixctl.errors import DriftError, InputError, UsageError
from prefixctl.metrics.model import AlertRule, AlertSeverity, RecordingRule, Runbooks
from prefixctl.metrics.parameters import Parameters
from prefixctl.metrics.profiles import build_rules
from prefixctl.metrics.recording import HIT_RATE_FIELD_NAME
from prefixctl.metrics.selector import make_source
from prefixctl.metrics.unittests import unit_tests
from prefixctl.sources.catalogue import load_catalogue

ROOT = Path(__file__).parents[2]
RUNBOOKS = Runbooks(base="docs/runbooks/")
SOURCE = make_source()
RULES = build_rules("day1", SOURCE, parameters=Parameters(), runbooks=RUNBOOKS)
SCENARIOS = unit_tests(RULES, SOURCE, Parameters())


@pytest.fixture
def config(tmp_path):
    return Config().at(tmp_path)


def test_only_catalogued_series_are_used():
    text = "\n".join(rule.expr for rule in (*RULES.recording_rules, *RULES.alerts))
    names = set(re.findall(r"(?<![\w:])vllm:\w+", text))
    assert names
    for name in names:
        load_catalogue().find(name)


def test_recorded_names_are_unique_and_every_one_that_is_read_is_made_before():
    made: set[str] = set()
    for rule in (*RULES.recording_rules, *RULES.alerts):
        read = set(re.findall(r"(?:model|model_source|prefix_cache):\w+:\w+", rule.expr))
        assert read <= made
        if isinstance(rule, RecordingRule):
            assert rule.record not in made
            made.add(rule.record)
    assert HIT_RATE_FIELD_NAME in made


def test_every_division_is_guarded():
    for rule in RULES.recording_rules:
        for divisor in re.findall(r"^\s*/.*\n(.*(?:\n.*){0,4})", rule.expr, re.MULTILINE):
            assert " > " in divisor or divisor.strip() == "0.01", rule.record


def test_created_series_are_never_read():
    assert not any("_created" in r.expr for r in (*RULES.recording_rules, *RULES.alerts))


@pytest.mark.parametrize("alert", RULES.alerts, ids=lambda rule: rule.alert)
def test_every_alert_has_a_situation_that_fires_and_is_explained(alert):
    tests = [test for scenario in SCENARIOS for test in scenario.alerts if test.rule == alert]
    assert any(test.firing for test in tests)
    assert any("firing" in test.expr and not test.samples for s in SCENARIOS for test in s.exprs)
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert f"## {alert.alert}\n" in page


def test_every_alert_has_its_labels_and_annotations():
    for alert in RULES.alerts:
        assert alert.severity in AlertSeverity
        assert alert.summary.endswith(".")
        assert alert.description
        assert alert.runbook_url == f"docs/runbooks/{alert.alert}.md"


def test_every_recorded_series_is_looked_at_while_idle():
    idle = next(s for s in SCENARIOS if "NaN" in s.name)
    tested = {test.expr for test in idle.exprs}
    assert {f"{r.record} != {r.record}" for r in RULES.recording_rules} <= tested


def test_names_are_checked():
    with pytest.raises(ValueError, match="level:metric:operations"):
        RecordingRule(record="vllm:hits", expr="x")
    with pytest.raises(ValueError, match="CamelCase"):
        AlertRule(
            alert="low_hit_rate",
            expr="x",
            hold=Parameters().hold,
            severity=AlertSeverity.INFO,
            summary="s.",
            description="d",
            runbook_url="u",
        )


def test_one_page_for_all_runbooks_has_a_heading_each():
    assert Runbooks(base="alerts.md#").url("PrefixCacheDisabled") == "alerts.md#prefixcachedisabled"


def test_generation_is_the_same_on_every_run(config, tmp_path):
    first = api.generate_rules(config, profile="day1", out_dir=tmp_path / "a")
    api.generate_rules(config, profile="day1", out_dir=tmp_path / "b")
    for file in first.files:
        assert file.changed
        assert file.path.read_bytes() == (tmp_path / "b" / file.path.name).read_bytes()
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o644
    again = api.generate_rules(config, profile="day1", out_dir=tmp_path / "a")
    assert not any(file.changed for file in again.files)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "day1.rules.yaml",
        "day1.tests.yaml",
    ]


def test_the_committed_rules_are_current():
    api.check_generated(Config(), profile="day1", out_dir=ROOT / "rules")


def test_only_what_promtool_2_42_knows_is_written(config, tmp_path):
    api.generate_rules(config, profile="day1", out_dir=tmp_path)
    for group in yaml.safe_load((tmp_path / "day1.rules.yaml").read_text())["groups"]:
        assert set(group) == {"name", "interval", "rules"}
        for rule in group["rules"]:
            assert set(rule) <= {"record", "alert", "expr", "for", "labels", "annotations"}


def test_drift_names_the_line(config, tmp_path):
    api.generate_rules(config, profile="day1", out_dir=tmp_path)
    path = tmp_path / "day1.rules.yaml"
    path.write_text(path.read_text().replace("interval: 1m", "interval: 2m", 1))
    with pytest.raises(DriftError) as caught:
        api.check_generated(config, profile="day1", out_dir=tmp_path)
    assert caught.value.line == 5
    path.unlink()
    with pytest.raises(DriftError, match="missing"):
        api.check_generated(config, profile="day1", out_dir=tmp_path)
    assert not path.exists()


def test_a_cut_file_is_drift(config, tmp_path):
    api.generate_rules(config, profile="day1", out_dir=tmp_path)
    path = tmp_path / "day1.tests.yaml"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DriftError):
        api.check_generated(config, profile="day1", out_dir=tmp_path)


def test_selector_and_prefix_reach_rules_and_tests(tmp_path):
    config = Config.model_validate({"metrics": {"selector": 'job="kserve"'}}).at(tmp_path)
    api.generate_rules(
        config, profile="day1", out_dir=tmp_path, metric_prefix="kserve_vllm:", settings=["hold=5m"]
    )
    rules = (tmp_path / "day1.rules.yaml").read_text()
    tests = (tmp_path / "day1.tests.yaml").read_text()
    assert "for: 5m" in rules
    assert 'kserve_vllm:prefix_cache_hits_total{job="kserve"}[5m]' in rules
    assert not re.search(r"(?<![\w])vllm:", rules)
    assert 'job="kserve"' in tests
    assert "--selector 'job=\"kserve\"' --set hold=5m" in rules


def test_an_unknown_profile_is_a_usage_error(config, tmp_path):
    with pytest.raises(UsageError, match="no profile 'day2'") as caught:
        api.generate_rules(config, profile="day2", out_dir=tmp_path)
    assert caught.value.hint == "did you mean day1?"


def test_a_folder_that_is_a_file_is_an_input_error(config, tmp_path):
    (tmp_path / "rules").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        api.generate_rules(config, profile="day1", out_dir=tmp_path / "rules")


def test_settings_of_the_configuration_reach_the_rules(tmp_path):
    config = Config.model_validate({"metrics": {"set": {"ttft_p99_seconds": 1}}}).at(tmp_path)
    api.generate_rules(config, profile="day1", out_dir=tmp_path)
    api.check_generated(config, profile="day1", out_dir=tmp_path)
    assert "ttft_p99_seconds=1" in (tmp_path / "day1.rules.yaml").read_text()
