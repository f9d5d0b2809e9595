"""Files made to crash, to hang or to grow: always a report."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from linting import CHAT_LOOP, lint_text

from prefixctl.core.findings import Verdict

NAMES = ["p.jinja", "p.md", "p.txt", "p.json", "p.yaml", "p.prompty", "p.hbs"]
SOME = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SHARDS = ["{{", "}}", "{%", "%}", "{#", "#}", "{", "}", "'", '"', "\\", "|", "now", "user.name",
          " if ", "for x in y", "endfor", "endif", "set a = ", "macro m()", "endmacro", "\n", "\r",
          "---\n", "a: ", "- ", "[", "]", '"role": "user"', '"content":', "你", "+", "~", "(", ")",
          "raw", "endraw", "-", "messages", "<x>", "%", ",", "block b", "endblock",
          "é", "\0"]  # fmt: skip


@SOME
@given(data=st.binary(max_size=300), name=st.sampled_from(NAMES))
def test_any_bytes(tmp_path, data, name):
    assert lint_text(tmp_path, data, name).verdict in Verdict


@SOME
@given(shards=st.lists(st.sampled_from(SHARDS), max_size=40), name=st.sampled_from(NAMES))
def test_any_syntax(tmp_path, shards, name):
    assert lint_text(tmp_path, "".join(shards), name).verdict in Verdict


@SOME
@given(text=st.text(max_size=200))
def test_static_text_is_never_a_finding(tmp_path, text):
    plain = text.translate(str.maketrans("", "", "{}\0"))
    report = lint_text(tmp_path, plain.encode("utf-8", "ignore"), "p.md")
    assert {f.rule for f in report.findings} <= {"PFX303", "PFX304"}


MANY = 10_000
HOSTILE = {
    "nested ifs": "{% if a %}" * 2000 + "{% endif %}" * 2000,
    "nested parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "long sum": "{{ " + "+".join(["a"] * MANY) + " }}",
    "long concat": "{{ " + "~".join(["a"] * MANY) + " }}",
    "long elif": "{% if a %}1" + "{% elif b == 1 %}{{ now }}" * 1500 + "{% endif %}",
    "doubling text": "{% set a = 'x' * 1000 %}" + "{% set a = a + a %}" * 60 + "{{ a }}",
    "doubling holes": "{% set a = now() %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
    "doubling choices": "{% set a = now() %}"
    + "{% set b %}{% if x %}{{ a }}1{% else %}{{ a }}2{% endif %}{% endset %}{% set a = b %}" * 60
    + "{{ a }}",
    "macro towers": "{% macro m0() %}{{ now() }}{% endmacro %}"
    + "".join(
        f"{{% macro m{i}() %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}"
        for i in range(1, 23)
    )
    + "{{ m22() }}",
    "recursive macro": "{% macro m(x) %}{{ m(x) }}{{ x }}{% endmacro %}{{ m(now()) }}",
    "nested loops": "{% for x in y %}" * 18 + "{{ x }}" + "{% endfor %}" * 18,
    "huge range": "{% for i in range(10 ** 12) %}{{ i }}{% endfor %}{{ 'a' * 10 ** 12 }}",
    "open braces": "{{" * MANY,
    "open statements": "{%" * MANY,
    "open comments": "{{!--" * MANY,
    "spaces": "{{" + " " * 100_000,
    "parentheses behind a name": "{{ a" + "()" * 200 + "x!" + " }}",
    "long line of spaces": "x" + " " * 100_000 + "x {{ now }}",
    "open tags": "<a" * MANY + "{{ now }}",
    "dashes": "---\n" * MANY,
    "brackets": "[" * MANY,
    "braces": "{" * MANY,
    "json braces": '{"a":' * 5000,
    "aliases": "a: &a [x,x]\n" + "\n".join(f"k{i}: &b{i} [*a,*a]" for i in range(50)),
    "long path": "{{ a" + ".b" * 900 + " }}",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_end(tmp_path, case):
    names = ["p.jinja"] if "macro" in case else NAMES
    for name in names:
        assert lint_text(tmp_path, HOSTILE[case], name).verdict in Verdict


def test_deep_nesting_is_a_clear_error(tmp_path):
    report = lint_text(tmp_path, HOSTILE["nested ifs"])
    assert report.verdict is Verdict.ERROR
    assert "nested" in report.findings[0].message


def test_a_tower_of_macros_is_a_clear_error(tmp_path):
    report = lint_text(tmp_path, HOSTILE["macro towers"] + CHAT_LOOP)
    assert report.verdict in {Verdict.ERROR, Verdict.BREAK}


def test_values_that_double_are_still_found(tmp_path):
    report = lint_text(tmp_path, HOSTILE["doubling holes"] + " and some more text" * 20)
    assert report.verdict is Verdict.BREAK


@pytest.mark.parametrize("count", [3_000, 50_000])
def test_an_f_string_of_many_placeholders_is_refused_before_it_is_parsed(tmp_path, count):
    fields = " ".join(f"{{x{i}}}" for i in range(count))
    text = f'def build_prompt(ctx):\n    return f"""Answer the question.\n{fields}"""\n'
    (finding,) = lint_text(tmp_path, text, "prompts.py").findings
    assert (finding.rule, finding.location.line) == ("PFX000", 2)
    assert "more than 2,000 placeholders" in finding.message


@pytest.mark.parametrize("text", ["{% foo ", "{% foo x y", "{% foo %}{% endfoo ", "a {% foo\nb"])
def test_a_tag_that_is_never_closed_ends(tmp_path, text):
    report = lint_text(tmp_path, text)
    assert report.verdict is Verdict.ERROR
