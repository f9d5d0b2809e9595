"""PromQL text, selectors and parameters."""

from datetime import timedelta

import pytest

from prefixctl.errors import InputError, UsageError
from prefixctl.metrics.parameters import Parameters, apply_settings
from prefixctl.metrics.promql import also, chain, duration, guarded_ratio, unless
from prefixctl.metrics.selector import Matcher, make_source, parse_matchers

MINUTES_5 = timedelta(minutes=5)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(days=1), "1d"),
        (timedelta(hours=6), "6h"),
        (timedelta(minutes=90), "90m"),
        (timedelta(seconds=90), "90s"),
    ],
)
def test_durations_take_the_largest_unit_that_divides(span, text):
    assert duration(span) == text


@pytest.mark.parametrize("span", [timedelta(), timedelta(seconds=-1), timedelta(milliseconds=5)])
def test_a_duration_is_positive_and_whole(span):
    with pytest.raises(ValueError, match="whole seconds"):
        duration(span)


def test_a_ratio_has_a_guard():
    assert guarded_ratio("a", "b") == "  a\n/\n  (b > 0)"


def test_a_chain_has_its_operators_at_the_margin():
    assert chain("a", also("b"), unless("(c)")) == "  a\nand\n  b\nunless\n  (c)"


def test_matchers_are_read_and_added_to_every_selector():
    source = make_source(selector='{job="vllm", env!~"dev|test"}')
    assert (
        source.vector("vllm:num_preemptions_total")
        == 'vllm:num_preemptions_total{job="vllm",env!~"dev|test"}'
    )


def test_a_matcher_on_a_label_that_the_series_lacks_is_left_out():
    source = make_source(selector='model_name="m",job="vllm"')
    assert source.vector("vllm:cache_config_info") == 'vllm:cache_config_info{job="vllm"}'


@pytest.mark.parametrize("text", ["job", 'job="a" env="b"', 'job="a"} or up{', "job='a'", 'a="\n"'])
def test_anything_else_between_the_braces_is_refused(text):
    with pytest.raises(InputError, match="no label matcher"):
        parse_matchers(text)


def test_the_prefix_of_stored_names_can_differ():
    source = make_source(metric_prefix="kserve_vllm:")
    assert source.name("vllm:kv_cache_usage_perc") == "kserve_vllm:kv_cache_usage_perc"
    with pytest.raises(InputError, match="cannot begin"):
        make_source(metric_prefix="my-vllm:")


@pytest.mark.parametrize(
    ("op", "value", "example"),
    [
        ("=", "vllm", "vllm"),
        ("=~", "vllm|sglang", "vllm"),
        ("=~", "prod-.+", "prod-x"),
        ("!=", "dev", ""),
        ("!~", "dev.*", ""),
    ],
)
def test_examples_satisfy_their_matcher(op, value, example):
    assert Matcher(label="job", op=op, value=value).example == example


@pytest.mark.parametrize(("op", "value"), [("=~", "[a-f]{8}"), ("!=", ""), ("!~", ".*")])
def test_no_example_is_an_error_not_a_guess(op, value):
    with pytest.raises(InputError, match="no example value"):
        _ = Matcher(label="job", op=op, value=value).example


def test_a_broken_pattern_is_an_input_error():
    with pytest.raises(InputError, match="pattern"):
        parse_matchers('job=~"("')


def test_a_gauge_has_no_rate():
    with pytest.raises(ValueError, match="gauge"):
        make_source().rate("vllm:kv_cache_usage_perc", MINUTES_5)


def test_settings_change_parameters_by_name():
    changed = apply_settings(Parameters(), ["ttft_p99_seconds=1", "hold=5m"])
    assert changed.ttft_p99_seconds == 1.0
    assert changed.hold == MINUTES_5
    assert changed.low_hit_rate == Parameters().low_hit_rate


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("ttft_p99=1", "no parameter"),
        ("hold=5", "no time span"),
        ("hold=0m", "no time span"),
        ("low_hit_rate=40", "no share"),
        ("low_hit_rate=nan", "no share"),
        ("ttft_p99_seconds=-1", "no positive number"),
        ("ttft_p99_seconds=inf", "no positive number"),
        ("replica_labels=pod", "no parameter"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, words):
    with pytest.raises(UsageError, match=words) as caught:
        apply_settings(Parameters(), [setting])
    assert caught.value.hint
