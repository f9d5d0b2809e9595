"""Suppressions: what they take, what they leave, and how they report themselves."""

from __future__ import annotations

import pytest
from linting import lint_text, static

from prefixctl.core.findings import Severity

WHY = "the day is part of the product"
BODY = static(60)


def rules(report) -> list[str]:
    return [f.rule for f in report.findings]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.j2", "{# prefixctl: allow PFX101 why #}\nNow: {{ now }}\n"),
        ("p.j2", "Now: {{ now }} {#- prefixctl: allow PFX101 why -#}\n"),
        ("p.j2", "{# prefixctl: allow clock-in-prefix: why #}\nNow: {{ now }}\n"),
        ("p.j2", "{# prefixctl: allow\n   pfx101 why #}\nNow: {{ now }}\n"),
        ("p.md", "# prefixctl: allow PFX101 why\nNow: {{ now }}\n"),
        ("p.md", "<!-- prefixctl: allow PFX101 why -->\nNow: {{ now }}\n"),
        ("p.txt", "# prefixctl: allow PFX101 why\nNow: {now}\n"),
        ("p.j2", "{# prefixctl: allow-file PFX101 why #}\n\n\nNow: {{ now }}\n"),
    ],
)
def test_a_comment_allows_a_finding(tmp_path, name, text):
    bare = "\n".join(line for line in text.splitlines() if "now" in line).split("{#-")[0]
    assert "PFX101" in rules(lint_text(tmp_path, bare + "\n" + BODY, name))
    report = lint_text(tmp_path, text + BODY, name)
    assert rules(report) == []
    ((finding, reason),) = [(s.finding, s.reason) for s in report.suppressed]
    assert (finding.rule, reason) == ("PFX101", "why")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "p.yaml",
            "# prefixctl: allow PFX101 why\nsystem_prompt: |\n  Be brief.\n  Now: {{ now }}\n",
        ),
        ("p.yaml", "system_prompt: | # prefixctl: allow PFX101 why\n  Hi.\n\n  Now: {{ now }}\n"),
        ("p.py", "# prefixctl: allow PFX101 why\nSYSTEM_PROMPT = '''\nBrief.\nNow: {now}\n"),
    ],
)
def test_strings_of_several_lines_are_allowed_where_they_begin(tmp_path, name, text):
    body = "".join(f"  {line}\n" for line in BODY.splitlines()) + "'''\n" * name.endswith("y")
    report = lint_text(tmp_path, text + body, name)
    assert rules(report) == []
    assert [s.finding.rule for s in report.suppressed] == ["PFX101"]


def test_several_rules_and_comments_above_one_another(tmp_path):
    text = (
        "{# prefixctl: allow PFX101 why #}\n{# prefixctl: allow PFX103, session-in-prefix why #}\n"
        "{{ now }} {{ user_name }} {{ session_id }}\n"
    )
    report = lint_text(tmp_path, text + BODY)
    assert rules(report) == []
    assert {s.finding.rule for s in report.suppressed} == {"PFX101", "PFX103", "PFX105"}


@pytest.mark.parametrize(
    ("comment", "severity", "words"),
    [
        ("allow PFX103 why", Severity.WARNING, "finds nothing here"),
        ("allow PFX999 why", Severity.WARNING, "no rule `PFX999`"),
        ("allow the clock", Severity.WARNING, "names no rule"),
        ("allow PFX001 why", Severity.WARNING, "finds nothing here"),
    ],
)
def test_what_allows_nothing_is_reported_and_takes_nothing(tmp_path, comment, severity, words):
    text = "{# prefixctl: " + comment + " #}\nNow: {{ now }}\n" + BODY
    report = lint_text(tmp_path, text)
    assert rules(report) == ["PFX001", "PFX101"]
    assert report.suppressed == ()
    finding = report.findings[0]
    assert finding.severity is severity
    assert words in finding.message
    assert (finding.location.line, finding.location.column) == (1, 1)


def test_a_missing_reason_is_a_remark(tmp_path):
    report = lint_text(tmp_path, "{# prefixctl: allow PFX101 #}\n{{ now }}\n" + BODY)
    (finding,) = report.findings
    assert (finding.rule, finding.severity) == ("PFX001", Severity.INFO)
    assert len(report.suppressed) == 1


def test_a_comment_beside_text_holds_for_its_own_line_only(tmp_path):
    text = "Hello. {# prefixctl: allow PFX101 why #}\nNow: {{ now }}\n" + BODY
    assert rules(lint_text(tmp_path, text)) == ["PFX001", "PFX101"]


def test_allow_file_stands_at_the_top(tmp_path):
    text = "Now: {{ now }}\n" + static(120) + "{# prefixctl: allow-file PFX101 why #}\n"
    report = lint_text(tmp_path, text)
    assert rules(report) == ["PFX101", "PFX001"]
    assert "first 10 lines" in report.findings[1].message


def test_templates_know_only_their_own_comments(tmp_path):
    text = "# prefixctl: allow PFX101 why\nNow: {{ now }}\n" + BODY
    assert rules(lint_text(tmp_path, text)) == ["PFX101"]


def test_an_unreadable_file_cannot_be_allowed(tmp_path):
    report = lint_text(tmp_path, "{# prefixctl: allow-file PFX000 why #}\n{% if %}")
    assert rules(report) == ["PFX000"]


def test_sections_of_a_governed_prompt(tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "prompt.yaml").write_text(
        "sections:\n- {kind: system_prompt, file: s.md.j2}\n"
        "- {kind: user, file: u.md.j2}\nparameters:\n  day: {scope: day}\n  q: {scope: request}\n"
    )
    (folder / "u.md.j2").write_text("{{ q }}")
    lines = "{# prefixctl: allow PFX101 " + WHY + " #}\n{{ day }}\n" + BODY
    report = lint_text(tmp_path, lines, "p/s.md.j2")
    assert [s.reason for s in report.suppressed] == [WHY], report.findings
