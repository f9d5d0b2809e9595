"""promtool accepts the generated rules, and its unit tests fail when a guard is taken away."""

import re
import shutil

import pytest
import yaml

from prefixctl.api import rules as api
from prefixctl.config import Config

pytestmark = [
    pytest.mark.promtool,
    pytest.mark.skipif(
        shutil.which("promtool") is None, reason="promtool is not installed (apt: prometheus)"
    ),
]

VARIANTS = {
    "defaults": {},
    "quick and strict": {
        "selector": 'job="prod-vllm",env!="dev"',
        "metric_prefix": "kserve_vllm:",
        "settings": [
            *("hold=5m", "cold_start=15m", "baseline_offset=15m", "min_history=10m"),
            *("low_hit_rate=0.7", "max_hit_rate_loss=0.1", "min_baseline_hit_rate=0.5"),
            *("ttft_p99_seconds=0.3", "max_preemptions_per_second=1", "max_kv_usage=0.8"),
        ],
    },
    "patient and lenient": {
        "selector": 'namespace=~"llm-.+|x",model_name="m",instance="a:8000"',
        "settings": [
            *("frozen_window=20m", "baseline_window=2d", "cold_start=40m", "kv_block_sample=1"),
            *("low_hit_rate=0.1", "max_hit_rate_loss=0.8", "min_query_tokens_per_second=1000"),
        ],
    },
}


def generate(folder, **options):
    api.generate_rules(Config(), profile="day1", out_dir=folder, **options)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_rules_pass_check_and_unit_tests(tmp_path, options):
    generate(tmp_path, **options)
    for result in api.test_rules(tmp_path):
        assert result.passed, result.output


MUTATIONS = {
    ("no cold start for new engines", "after a deploy"): (
        r"\n\s+and\n\s+vllm:prefix_cache_queries_total offset 30m",
        "",
    ),
    ("no cold start for restarts", "restart in place"): (
        r"\n\s+unless\n\s+\(resets\([^\n]+ > 0\)",
        "",
    ),
    ("one alert for each engine", "not four"): (r"engine, host, hostname, instance, ", ""),
    ("a sum of counters under rate", "counter reset"): (
        r"rate\((vllm:prefix_cache_queries_total)\[5m\]\)",
        r"deriv(\1[5m])",
    ),
    ("the ratio inverted", "steady"): (
        r"  model:vllm_prefix_cache_hits:rate5m\n(\s+)/\n(\s+)\(model:vllm_prefix_cache_queries",
        r"  model:vllm_prefix_cache_queries:rate5m\n\1/\n\2(model:vllm_prefix_cache_hits",
    ),
    ("no guard in ratios", "idle engines"): (r"\((model:[\w:]+:rate5m) > 0\)", r"\1"),
    ("no traffic guard", "traffic guard"): (
        r"\n\s+and\n\s+\(model:vllm_prefix_cache_queries_warm:rate5m > 20\)",
        "",
    ),
    ("no request guard", "few long requests"): (
        r"\n\s+unless\n\s+\(model:vllm_time_to_first_token_seconds_count:rate5m < 0.03\)",
        "",
    ),
    ("frozen does not outrank", "without one hit"): (
        r"\n\s+unless\n\s+model:vllm_frozen_engines:count",
        "",
    ),
    ("a fall does not outrank", "not four"): (
        r"\n\s+unless\n\s+\(model:vllm_prefix_cache_hit_rate_warm_per_baseline:ratio < 0.7\)",
        "",
    ),
    ("preemptions do not outrank", "preemptions are"): (
        r"\n\s+unless\n\s+\(model:vllm_num_preemptions[^\n]+\)",
        "",
    ),
    ("frozen without a past", "without any hit"): (
        r"\n\s+>\n\s+0\.2\n",
        "\n            >=\n              0\n",
    ),
    ("frozen while idle", "stop together"): (
        r"\(rate\(vllm:prefix_cache_queries_total\[10m\]\) > 20\)",
        "(rate(vllm:prefix_cache_queries_total[10m]) >= 0)",
    ),
    ("the past begins at once", "not four"): (r" offset 30m\]?", " offset 1m"),
    ("no wait", "a dip"): (r"for: 10m", "for: 1m"),
    ("a higher bound of latency", "above its bound"): (r"p99_5m > 2.5", "p99_5m > 25"),
    ("latency of a cold start", "of a cold start"): (
        r"\n\s+and\n\s+\(model:vllm_warm_engines:count > 0\)",
        "",
    ),
    ("absent is not seen", "disappear"): (r"absent\(", "count("),
    ("caching on is an alert", "steady"): (
        r'enable_prefix_caching="False"',
        'enable_prefix_caching="True"',
    ),
    ("another description", "fill the pool"): (r"of the KV blocks", "of KV blocks"),
}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules")
    generate(folder)
    tests = yaml.load((folder / "day1.tests.yaml").read_text(), yaml.CSafeLoader)
    return (folder / "day1.rules.yaml").read_text(), tests


@pytest.mark.parametrize(("mutation", "situation"), MUTATIONS)
def test_a_unit_test_fails_when_a_rule_is_broken(tmp_path, generated, mutation, situation):
    rules, suite = generated
    pattern, instead = MUTATIONS[mutation, situation]
    broken, times = re.subn(pattern, instead, rules)
    assert times, "the mutation changes nothing"
    (tmp_path / "day1.rules.yaml").write_text(broken)
    chosen = [test for test in suite["tests"] if situation in test["name"]]
    (tmp_path / "day1.tests.yaml").write_text(yaml.safe_dump({**suite, "tests": chosen}))
    check, test = api.test_rules(tmp_path)
    assert check.passed, check.output
    assert not test.passed
