"""Prompt strings in YAML, JSON and TOML, and tool schemas."""

from __future__ import annotations

import json

import pytest
from linting import lint_text, static

from prefixctl.core.findings import Verdict
from prefixctl.lint.readers.any_file import read_file
from prefixctl.lint.source import Source

OK, WARN, BREAK, ERROR = Verdict.OK, Verdict.WARN, Verdict.BREAK, Verdict.ERROR
R = static(60)
N = "\n"
LONG = static(130)


def block(text: str, indent: int = 2) -> str:
    """A literal block of YAML."""
    return "|\n" + "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())


YAML = [
    ("prompt: " + block(R + "{{ question }}"), OK, None),
    ("prompt: " + block("Date: {{ today }}\n" + R), WARN, 2),
    ("prompt: " + block("Q: {{ question }}\n" + R), BREAK, 2),
    ("prompt: " + block("Q: {question}\n" + R), BREAK, 2),
    ("prompt: [a\n", ERROR, None),
    ("prompt: " + block("{% if a %}\n" + R), ERROR, None),
    ("a:\n  summarise:\n    template: " + block("{{ user_id }}\n" + R, 6), BREAK, 4),
    ("prompts:\n  - " + block(R, 4) + "  - " + block("{{now}}\n" + R, 4), BREAK, 10),
    ("system: " + block(R + "{{ session_id }}") + "user: " + block(R), BREAK, 8),
    ("system: " + block(R + "{{ session_id }}") + "other: " + block(R), OK, None),
    ("user: " + block(R) + "system: " + block(R), OK, None),
    ("template_format: handlebars\ntemplate: " + block("{{#each history}}\n" + R), ERROR, 3),
    ("template_format: handlebars\ntemplate: "
     + block("{{#if a}}\n{{now}}{{/if}}\n" + R), BREAK, 4),
    ("template_format: f-string\ntemplate: " + block("{{now}} {date}\n" + R), WARN, 3),
    ("template_format: semantic-kernel\ntemplate: " + block("{{time.Now}}\n" + R), BREAK, 3),
    ("prompt: " + block("Now: $now\n" + R), BREAK, 2),
    ("prompt: " + block("Pay $5 and {5} or {'a': 1}.\n" + R), OK, None),
    ("a: 1\nb: [x, y]\n", ERROR, 1),
    ("agent:\n  role: Helper of {{ user_name }}\n  goal: " + block(R, 4), OK, None),
    ("jinja: 'Answer {{ question }}\n\n  ||| \n\n  " + R.replace("\n", " ") + "'\n", OK, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), YAML)
def test_yaml(tmp_path, text, verdict, line):
    _check(tmp_path, text, "agent.yaml", verdict, line)


def test_a_hint_counts_where_much_stands_behind_it(tmp_path):
    few, much = block("{{ task }}\n" + R), block("{{ task }}\n" + LONG)
    assert lint_text(tmp_path, "template: " + few, "a.yaml").verdict is OK
    assert lint_text(tmp_path, "template: " + much, "a.yaml").verdict is BREAK
    assert lint_text(tmp_path, "prompt: " + few, "a.yaml").verdict is BREAK


JSON = [
    ({"prompt": R + "{{ question }}"}, OK),
    ({"prompt": "Date: {{ today }}\n" + R}, WARN),
    ({"_type": "prompt", "template": "Q: {question}\n" + R}, BREAK),
    ({"template_format": "mustache", "template": "{{#user}}\n" + R}, ERROR),
    ({"system": R + "{{ user_id }}", "user": R}, BREAK),
    ({"a": [{"prompt": R}, {"prompt": "{{ now }}\n" + R}]}, BREAK),
    ({"name": "a", "version": "1.0"}, ERROR),
    ({"contents": [{"role": "user", "parts": [{"text": "{{ now }}\n" + R}]}]}, BREAK),
    ({"a": {"b": {"messages": [{"role": "system", "content": "{{ now }}\n" + R}]}}}, BREAK),
]


@pytest.mark.parametrize(("value", "verdict"), JSON)
def test_json(tmp_path, value, verdict):
    _check(tmp_path, json.dumps(value, indent=1), "prompts.json", verdict, None)


TOML = [
    (f"[a]\nsystem = '''\n{R}'''\n", OK, None),
    (f"[a]\nprompt = '''\nDate: {{{{today}}}}\n{R}'''\n", WARN, 3),
    (f'[a]\nprompt = """\nQ: {{{{question}}}}\n{R}"""\n', BREAK, 3),
    (f'[a]\nsystem = """{R}"""\nuser = """Q: {{{{question}}}}\n{R}"""\n', BREAK, 9),
    (f'[a]\nx = "{{{{now}}}}" # {{{{now}}}}\nprompt = "{{{{now}}}}\\n{R[:200].replace(N, " ")}"\n',
     BREAK, 3),
    (f'[a]\nprompt = """{R}', ERROR, None),
    ("[a]\nb = 1\n", ERROR, 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), TOML)
def test_toml(tmp_path, text, verdict, line):
    _check(tmp_path, text, "prompts.toml", verdict, line)


def test_a_broken_toml_names_its_place(tmp_path):
    (finding,) = lint_text(tmp_path, "a = 1\nb = = 2\n", "p.toml").findings
    assert (finding.location.line, finding.location.column) == (2, 5)


PARAMETERS = {"type": "object", "properties": {"q": {"type": "string", "description": "{{ now }}"}}}
TOOLS = [
    [{"type": "function", "function": {"name": "find", "parameters": PARAMETERS}}],
    [{"name": "find", "description": R, "input_schema": PARAMETERS}],
    {"tools": [{"name": "find", "inputSchema": PARAMETERS}]},
    {"name": "find", "description": "Finds.", "parameters": PARAMETERS},
]


@pytest.mark.parametrize("value", TOOLS)
@pytest.mark.parametrize("indent", [None, 2])
def test_tool_schemas_are_static_text(tmp_path, value, indent):
    report = lint_text(tmp_path, json.dumps(value, indent=indent), "tools.json")
    assert (report.format, report.verdict) == ("tools", OK)
    assert report.prefix_tokens == report.total_tokens > 10


@pytest.mark.parametrize("value", [[{"name": "a"}], [{"name": "a", "parameters": 3}], []])
def test_what_is_no_tool_schema(tmp_path, value):
    assert lint_text(tmp_path, json.dumps(value), "tools.json").verdict is ERROR


OTHER_FILES = [
    ("deploy.yaml", "kind: Deployment\nspec:\n  command: [run, '{{ .Values.now }}']\n"),
    ("ci.yml", "on: push\njobs:\n  a:\n    steps:\n      - run: echo ${{ github.sha }} is\n"),
    ("r.yaml", "groups:\n- rules:\n  - annotations:\n      description: '{{ $labels.x }} is'\n"),
    ("package.json", '{"name": "a", "scripts": {"test": "echo {now} and some more words here"}}'),
    ("en.json", '{"greeting": "Hello {name}, you are welcome in our shop for boots and tents"}'),
    ("app.toml", '[tool.a]\ndescription = "A tool for you that says {now} to all of its users"\n'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), OTHER_FILES)
def test_files_of_other_tools_are_passed_over(tmp_path, name, text):
    assert read_file(Source(str(tmp_path / name), text), named=False) is None


def _check(tmp_path, text, name, verdict, line):
    report = lint_text(tmp_path, text, name)
    assert report.verdict is verdict, report.findings
    if line is not None:
        assert line in {f.location.line for f in report.findings}
    if verdict is OK:
        assert not [f for f in report.findings if f.severity.label == "error"]
