"""Situations that people report in public, each with the right answer."""

from __future__ import annotations

import pytest
from linting import CHAT_LOOP, lint_text, static

from prefixctl.core.findings import Severity, Verdict
from prefixctl.core.prompt import Volatility


@pytest.mark.parametrize(
    ("name", "verdict", "volatility", "severity"),
    [
        ("CURRENT_DATETIME", Verdict.BREAK, Volatility.SECOND, Severity.ERROR),
        ("CURRENT_DATE", Verdict.WARN, Volatility.DAY, Severity.WARNING),
    ],
)
@pytest.mark.parametrize("file", ["p.jinja", "p.md", "p.txt"])
def test_placeholders_of_seconds_break_and_of_days_warn(
    tmp_path, name, verdict, volatility, severity, file
):
    report = lint_text(tmp_path, f"Now: {{{{{name}}}}}\n" + static(600), file)
    assert report.verdict is verdict
    (finding,) = report.findings
    assert (finding.rule, finding.location.line, finding.location.column) == ("PFX101", 1, 6)
    assert (finding.volatility, finding.severity) == (volatility, severity)
    assert finding.variable == name


def test_what_is_lost_is_reported_not_the_size_of_the_field(tmp_path):
    text = "The current date and time is {datetime}.\n" + static(2000)
    report = lint_text(tmp_path, text, "p.txt")
    assert report.format == "python-format"
    assert report.verdict is Verdict.BREAK
    assert 1800 <= report.tokens_lost <= 2600
    assert report.findings[0].tokens_lost == report.tokens_lost
    assert "about" in report.findings[0].message
    assert not report.tokens_exact


@pytest.mark.parametrize(
    ("pattern", "volatility"),
    [
        ("%I:%M:%S %p", Volatility.SECOND),
        ("%Y-%m-%d", Volatility.DAY),
        ("%d %b %Y", Volatility.DAY),
        ("%H:00", Volatility.HOUR),
    ],
)
def test_resolution_comes_from_the_format(tmp_path, pattern, volatility):
    report = lint_text(tmp_path, '{{ strftime_now("' + pattern + '") }}\n' + static(200))
    assert [f.volatility for f in report.findings] == [volatility]
    alone = lint_text(tmp_path, '{{ strftime_now("' + pattern + '") }}')
    assert [v.volatility for v in alone.values] == [volatility]
    assert alone.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("name", "volatility"),
    [("time", Volatility.SECOND), ("datetime", Volatility.SECOND), ("date", Volatility.DAY)],
)
def test_one_line_templates_of_an_application(tmp_path, name, volatility):
    report = lint_text(tmp_path, f"{{{{{name}}}}}")
    assert [v.volatility for v in report.values] == [volatility]


def test_columns_count_characters_not_bytes(tmp_path):
    report = lint_text(tmp_path, "【当前时间】 {{now}}\n" + static(100), "p.md")
    assert report.verdict is Verdict.BREAK
    assert (report.findings[0].location.line, report.findings[0].location.column) == (1, 8)


DATE_STRING = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{{- "<|start|>system\\n" }}
{{- "Today Date: " + date_string + "\\n" }}
"""


def test_the_date_of_a_chat_template(tmp_path):
    report = lint_text(tmp_path, DATE_STRING + CHAT_LOOP)
    assert report.format == "chat-template"
    assert report.verdict is Verdict.WARN
    (finding,) = report.findings
    assert finding.location.line == 10
    assert finding.variable == "date_string"
    assert "chat_template_kwargs.date_string" in finding.advice


@pytest.mark.parametrize(
    "form",
    [
        '{{ "Today: " + (date_string | default(strftime_now("%d %b %Y"))) }}',
        '{%- set date_string = date_string if date_string is defined else strftime_now("%d %b %Y")'
        " %}{{ date_string }}",
        '{{ date_string or strftime_now("%d %b %Y") }}',
    ],
)
def test_other_forms_of_a_date_that_may_be_passed(tmp_path, form):
    report = lint_text(tmp_path, form + CHAT_LOOP)
    assert report.verdict is Verdict.WARN
    assert "chat_template_kwargs.date_string" in report.findings[0].advice


@pytest.mark.parametrize("tail", [static(300), CHAT_LOOP])
def test_a_clock_that_is_computed_and_not_printed(tmp_path, tail):
    text = '{% set now = strftime_now("%H:%M:%S") %}\n{% set x = now ~ "!" %}\n' + tail
    report = lint_text(tmp_path, text)
    assert report.verdict is Verdict.OK
    assert not report.findings


@pytest.mark.parametrize("file", ["p.jinja", "p.md", "p.txt", "p.prompt"])
def test_plain_words_never_fire(tmp_path, file):
    text = "Pick a random date today, note the uuid of the session and the user now.\n"
    report = lint_text(tmp_path, text + static(300), file)
    assert report.verdict is Verdict.OK
    assert not report.findings
