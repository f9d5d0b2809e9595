"""Formats, encodings and places."""

from __future__ import annotations

import json

import pytest
from linting import CHAT_LOOP, lint_text, static

from prefixctl.core.findings import Verdict

BODY = "One.\nTwo.\n{{ now }}\n" + static(60)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["p.jinja", "p.md"])
def test_line_ends_and_byte_order_marks_move_no_place(tmp_path, newline, mark, name):
    report = lint_text(tmp_path, mark + BODY.replace("\n", newline).encode(), name)
    (finding,) = (f for f in report.findings if f.rule != "PFX303")
    assert (finding.location.line, finding.location.column) == (3, 1)


def test_mixed_line_ends(tmp_path):
    report = lint_text(tmp_path, "a\r\nb\rc\nd {{ now }}\n" + static(60))
    (finding,) = (f for f in report.findings if f.rule != "PFX304")
    assert (finding.location.line, finding.location.column) == (4, 3)


def test_other_separators_are_no_line_ends(tmp_path):
    (finding,) = lint_text(tmp_path, "a\u2028b\x0bc\x85 {{ now }}\n" + static(60)).findings
    assert (finding.location.line, finding.location.column) == (1, 8)


def test_utf16_is_read(tmp_path):
    report = lint_text(tmp_path, BODY.encode("utf-16"))
    assert report.verdict is Verdict.BREAK


@pytest.mark.parametrize(
    ("data", "words", "line"),
    [
        ("第一行\n鏡花水月繚亂，鶯歌燕舞".encode("gbk"), "it may be GBK", 1),
        (b"fine\nfine\xff\xfe\n", "not UTF-8", 2),
        (b"fine\n\0\0", "binary", 2),
        (b"\xff\xfea\xd8", "UTF-16", 1),
    ],
)
def test_undecodable_files_are_an_error(tmp_path, data, words, line):
    report = lint_text(tmp_path, data, "p.txt")
    assert report.verdict is Verdict.ERROR
    (finding,) = report.findings
    assert finding.rule == "PFX000"
    assert words in finding.message
    assert finding.location.line == line


def test_several_values_on_a_line_have_their_own_columns(tmp_path):
    text = "x {{ a }} {{ '}}' }} {# {{ now }} #}{% raw %}{{ now }}{% endraw %} {{ now }}\n"
    (finding,) = lint_text(tmp_path, text + static(60)).findings
    assert finding.location.column == text.rindex("{{") + 1


def test_a_broken_template_names_its_line(tmp_path):
    report = lint_text(tmp_path, "One.\n{% if a %}\n{{ b }}\n")
    assert report.verdict is Verdict.ERROR
    assert "broken template" in report.findings[0].message


@pytest.mark.parametrize("text", ["{% iff a %}b{% endif %}", "{{ a | }}", "{{ a", "{% for %}"])
def test_broken_templates(tmp_path, text):
    assert lint_text(tmp_path, text).verdict is Verdict.ERROR


def test_a_misspelt_tag_gets_a_suggestion(tmp_path):
    assert "'if'" in lint_text(tmp_path, "{% iff a %}b{% endif %}").findings[0].advice


@pytest.mark.parametrize("name", ["p.md", "p.jinja"])
def test_home_made_syntax_is_read_as_far_as_it_goes(tmp_path, name):
    text = '{{ include "./role.md" }}\n' + static(60)
    assert lint_text(tmp_path, text, name).verdict is Verdict.OK
    report = lint_text(tmp_path, '{{ include "./role.md" }}\n{{ now }}\n' + static(60), name)
    assert report.format == "braces"
    assert report.findings[0].location.line == 2


def test_handlebars(tmp_path):
    text = "{{! now }}{{#if a}}{{customer.firstName}}{{/if}}\n{{#each history}}{{text}}{{/each}}\n"
    report = lint_text(tmp_path, text + static(60), "p.hbs")
    assert {f.rule for f in report.findings} == {"PFX103", "PFX106"}


def test_front_matter_is_no_prompt(tmp_path):
    text = "---\nname: {{ now }}\nmodel:\n  api: chat\n---\nsystem:\n{{ today }}\n" + static(60)
    report = lint_text(tmp_path, text, "p.prompty")
    (finding,) = report.findings
    assert (finding.location.line, finding.variable) == (7, "today")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{now}", "now"),
        ("{now:%Y-%m-%d}", "now"),
        ("{user[name]!r}", "user.name"),
        ('{{"user": "{user.name}"}}', "user.name"),
    ],
)
def test_python_format(tmp_path, text, wanted):
    report = lint_text(tmp_path, text + "\n" + static(60), "p.txt")
    assert report.format == "python-format"
    assert [f.variable for f in report.findings] == [wanted]


@pytest.mark.parametrize("text", ['{"user": 1}', "{{", "$\\frac{a}{b}$", "{ now }", "{}", "{0}"])
def test_braces_that_are_no_fields(tmp_path, text):
    report = lint_text(tmp_path, text + "\n" + static(60), "p.txt")
    assert report.verdict is Verdict.OK
    assert not report.findings


def messages_of(system: str) -> list[dict[str, object]]:
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": [{"type": "text", "text": static(60)}]},
    ]


def test_message_lists_in_json(tmp_path):
    value = {"model": "m", "messages": messages_of('Say "hi"\nat {{ now }} to {{ now }}.')}
    report = lint_text(tmp_path, json.dumps(value, indent=2), "request.json")
    (finding,) = report.findings
    text = json.dumps(value, indent=2)
    line = next(i for i, x in enumerate(text.split("\n"), 1) if "{{ now }}" in x)
    assert finding.location.line == line
    assert finding.location.column == text.split("\n")[line - 1].index("{{") + 1
    assert report.format == "messages"


def test_message_lists_in_yaml(tmp_path):
    text = "- role: system\n  content: |\n    One.\n    It is {date}.\n- role: user\n  content: >\n"
    text += "".join(f"    {line}\n" for line in static(60).splitlines())
    report = lint_text(tmp_path, text, "messages.yaml")
    (finding,) = report.findings
    assert (finding.location.line, finding.location.column) == (4, 11)
    assert report.verdict is Verdict.WARN


def test_chat_templates_in_json(tmp_path):
    template = "{{ strftime_now('%H:%M:%S') }}" + CHAT_LOOP
    text = json.dumps({"bos_token": "<s>", "chat_template": template}, indent=1)
    report = lint_text(tmp_path, text, "tokenizer_config.json")
    assert (report.format, report.verdict) == ("chat-template", Verdict.BREAK)
    assert report.findings[0].location.line == 3
    several = {"chat_template": [{"name": "default", "template": template}]}
    assert lint_text(tmp_path, json.dumps(several), "c.json").verdict is Verdict.BREAK


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.json", '[{"role": "user", "content": }]'),
        ("m.yaml", "- role: [user"),
        ("m.json", '{"a": 1}'),
        ("p.py", 'PROMPT = "{now}"'),
    ],
)
def test_named_files_without_a_prompt_are_no_clean_pass(tmp_path, name, text):
    assert lint_text(tmp_path, text, name).verdict is Verdict.ERROR


def test_includes_stay_inside_the_project(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path.parent / "outside.j2").write_text("{{ user_id }}")
    (tmp_path / "inside" / "clock.j2").write_text("{{ now }}")
    text = 'Terms.\n{% include "clock.j2" %}{% include "../../outside.j2" %}\n' + static(60)
    (finding,) = lint_text(tmp_path, text, "inside/p.j2").findings
    assert (finding.variable, finding.location.line) == ("now", 2)
    (tmp_path.parent / "outside.j2").unlink()


def test_a_child_prints_its_parent(tmp_path):
    (tmp_path / "base.j2").write_text("{% block head %}{% endblock %}\n" + static(60))
    text = '{% extends "base.j2" %}\n{{ user_id }}{% block head %}\n{{ now }}{% endblock %}'
    (finding,) = lint_text(tmp_path, text, "child.j2").findings
    assert (finding.variable, finding.location.line) == ("now", 3)


def test_imported_macros(tmp_path):
    (tmp_path / "lib.j2").write_text("\n\n{% macro head() %}{{ now() }}{% endmacro %}")
    text = '{% from "lib.j2" import head %}\n{{ head() }}\n' + static(60)
    (finding,) = lint_text(tmp_path, text, "p.j2").findings
    assert finding.location.line == 2


def test_a_template_that_includes_itself_ends(tmp_path):
    assert lint_text(tmp_path, '{% include "p.j2" %}', "p.j2").verdict is Verdict.OK
