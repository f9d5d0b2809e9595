"""Rules: pages are up to date, their examples hold, and advice always offers a place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from linting import CHAT_LOOP, lint_text, static

from prefixctl.core.findings import Severity, Verdict
from prefixctl.errors import UsageError
from prefixctl.lint.pages import find_page, page_files, rule_pages
from prefixctl.lint.rules import MODULES, all_rules

DOCS = Path(__file__).parents[2] / "docs" / "rules"
PAGES = rule_pages()
JINJA = [p for p in PAGES if f"```jinja\n{p.bad}" in p.markdown]


def test_ids_and_names_are_unique_and_say_their_file():
    rules = all_rules()
    assert len({r.id for r in rules}) == len({r.name for r in rules}) == len(MODULES)
    for module in MODULES:
        assert module.__name__.rsplit(".", 1)[-1].startswith(module.RULE.id.lower() + "_")
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", module.RULE.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.rule.id)
def test_every_page_is_complete(page):
    for heading in ("## What it finds", "## Why it matters", "## Bad", "## Good"):
        assert heading in page.markdown
    assert page.bad
    assert page.good


def test_docs_hold_the_pages_and_no_others():
    kept = {f.name: f.read_text(encoding="utf-8") for f in DOCS.iterdir()}
    assert kept == page_files(), "run `make docs`"


@pytest.mark.parametrize("page", JINJA, ids=lambda p: p.rule.id)
def test_examples_in_pages_hold(tmp_path, page):
    bad = lint_text(tmp_path, page.bad)
    assert page.rule.id in {f.rule for f in bad.findings}
    assert max(f.severity for f in bad.findings) is page.rule.severity
    good = lint_text(tmp_path, page.good)
    assert page.rule.id not in {f.rule for f in good.findings}
    assert good.verdict is Verdict.OK


@pytest.mark.parametrize("page", JINJA, ids=lambda p: p.rule.id)
def test_findings_carry_evidence_and_a_place_to_go(tmp_path, page):
    for finding in lint_text(tmp_path, page.bad).findings:
        if finding.rule == "PFX000":
            continue
        assert len(finding.advice) > 30
        assert finding.variable
        assert f"`{finding.variable}`" in finding.message


def test_severity_follows_the_resolution_of_the_clock(tmp_path):
    found = {}
    for pattern in ("%S", "%H:%M", "%H:00", "%Y-%m-%d"):
        report = lint_text(tmp_path, "{{ strftime_now('" + pattern + "') }}\n" + static(60))
        found[pattern] = report.findings[0].severity
    assert list(found.values()) == [Severity.ERROR] * 2 + [Severity.WARNING] * 2


def test_less_than_a_block_behind_a_value_is_no_finding(tmp_path):
    assert lint_text(tmp_path, static(60) + "{{ now }}\nBe brief.").verdict is Verdict.OK


def test_a_finding_for_the_dump_and_one_for_the_loop(tmp_path):
    text = "{{ tools | tojson }}{% for t in tools %}{% for k, v in t.function.parameters.items() %}"
    text += "{{ k }}{% endfor %}{% endfor %}"
    report = lint_text(tmp_path, text + CHAT_LOOP)
    assert [f.rule for f in report.findings] == ["PFX201", "PFX201"]


def test_pages_are_found_by_id_and_name():
    assert find_page("pfx101").rule.name == "clock-in-prefix"
    assert find_page("clock-in-prefix").rule.id == "PFX101"
    with pytest.raises(UsageError) as caught:
        find_page("PFX110")
    assert "PFX10" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        find_page("clock-in-prefx")
    assert "clock-in-prefix" in (caught.value.hint or "")
