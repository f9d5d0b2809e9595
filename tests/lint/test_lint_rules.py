"""Rules: pages are up to date, their examples hold, and advice always offers a place."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
from linting import CHAT_LOOP, lint_text, static

from prefixctl.api.lint import lint_paths
from prefixctl.config import Config
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


def _advice(tmp_path, text):
    return [f.advice for f in lint_text(tmp_path, text + static(60)).findings if f.rule == "PFX201"]


NESTED, FLAT = 'sort(attribute="function.name")', 'sort(attribute="name")'


@pytest.mark.parametrize(
    ("text", "said", "unsaid"),
    [
        ("{% for t in tools %}{{ t.function.name }}{% endfor %}", [NESTED], [FLAT]),
        ("{% for t in tools %}{{ t['function']['name'] }}{% endfor %}", [NESTED], [FLAT]),
        ("{% for t in tools %}{{ t.name }}{% endfor %}", [FLAT], [NESTED]),
        ("{{ tools | tojson }}", [NESTED, FLAT], []),
        ("{% for t in tools | sort(attribute='name') %}{{ t.function.name }}{% endfor %}",
         [NESTED], [FLAT]),
        ("{% set s = tools | sort(attribute='name') %}{% for t in s %}{{ t.function.name }}"
         "{% endfor %}", [NESTED], [FLAT]),
        ("{{ tools | sort(attribute='name') | map(attribute='function.name') | join(', ') }}",
         [NESTED], [FLAT]),
    ],
)  # fmt: skip
def test_how_tools_are_sorted_follows_their_shape(tmp_path, text, said, unsaid):
    (advice,) = _advice(tmp_path, text)
    assert all(s in advice for s in said)
    assert not any(s in advice for s in unsaid)


@pytest.mark.parametrize(
    "text",
    [
        "{% for t in tools | sort(attribute='function.name') %}{{ t.function.name }}{% endfor %}",
        "{% for t in tools | sort(attribute='name') %}{{ t.name }}{% endfor %}",
        "{{ tools | sort(attribute='name') | map(attribute='name') | join(', ') }}",
    ],
)
def test_sorted_tools_are_no_finding(tmp_path, text):
    assert not _advice(tmp_path, text)


def test_jinja_leaves_tools_in_order_that_lack_the_attribute():
    tools = [{"function": {"name": n}} for n in "bac"]
    by = "{{% for t in tools | sort(attribute={0!r}) %}}{{{{ t.function.name }}}}{{% endfor %}}"
    made = [jinja2.Template(by.format(a)).render(tools=tools) for a in ("name", "function.name")]
    assert made == ["bac", "abc"]


PRINTED = (
    'return f"""Facts: {json.dumps(NAME)}\n',
    'facts = json.dumps(NAME)\n    return f"""Facts: {facts}\n',
    'lines = "\\n".join(f"{k}: {v}" for k, v in NAME.items())\n    return f"""Facts: {lines}\n',
    'return f"""Facts: {", ".join(NAME.keys())}\n',
    'p = "Facts: "\n    for k, v in NAME.items():\n        p += f"{k}: {v}"\n    return p + f"""\n',
)
IN_ORDER = (
    'return f"""Facts: {json.dumps(NAME, sort_keys=True)}\n',
    'return f"""Facts: {json.dumps({"a": NAME})}\n',
    'lines = "\\n".join(f"{k}: {v}" for k, v in sorted(NAME.items()))\n    return f"""{lines}\n',
    'return f"""Facts: {len(NAME.items())}\n',
    'NAME = {"a": 1, "b": 2}\n    return f"""Facts: {json.dumps(NAME)}\n',
    'p = ""\n    for k, v in sorted(NAME.items()):\n        p += f"{k}={v}"\n    return p + """',
)


def _python(tmp_path, body, name):
    path = tmp_path / "prompt.py"
    text = f'import json\n\ndef build_prompt({name}):\n    {body}{static(60)}"""\n'
    path.write_text(text.replace("NAME", name))
    return [f.rule for f in lint_paths(Config().at(tmp_path), [path]).findings]


@pytest.mark.parametrize("name", ["metadata", "x", "inventory", "config"])
@pytest.mark.parametrize("body", PRINTED)
def test_a_mapping_in_code_is_found_whatever_its_name(tmp_path, body, name):
    assert _python(tmp_path, body, name) == ["PFX201"]


@pytest.mark.parametrize("name", ["metadata", "x"])
@pytest.mark.parametrize("body", IN_ORDER)
def test_a_mapping_in_order_is_none(tmp_path, body, name):
    assert _python(tmp_path, body, name) == []


def test_a_constant_of_the_module_is_the_applications_own(tmp_path):
    path = tmp_path / "prompt.py"
    path.write_text(
        'import json\nlimits = {"a": 1}\nfrom x import LIMITS\n\ndef build_prompt():\n'
        f'    return f"""{{json.dumps(limits)}} {{json.dumps(LIMITS)}}\n{static(60)}"""\n'
    )
    assert not lint_paths(Config().at(tmp_path), [path]).findings
