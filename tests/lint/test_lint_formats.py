"""Prompt files: prompty, dotprompt, Handlebars, Mustache, Semantic Kernel, BAML, encodings."""

from __future__ import annotations

import pytest
from linting import lint_text, static

from prefixctl.core.findings import Verdict

OK, WARN, BREAK, ERROR = Verdict.OK, Verdict.WARN, Verdict.BREAK, Verdict.ERROR
R = static(60)
DOT = "---\nmodel: a/b\n---\n"
FRONT = "---\nname: shop\nmodel:\n  api: chat\ninputs:\n  question:\n    type: string\n---\n"

PROMPTY = [
    (f"{FRONT}system:\n{R}\nuser:\n{{{{question}}}}\n", OK, None),
    (f"{FRONT}system:\nDate: {{{{today}}}}\n{R}\nuser:\n{{{{question}}}}\n", WARN, 10),
    (f"{FRONT}system:\n{{{{customer.name}}}}\n{R}\nuser:\n{{{{question}}}}\n", BREAK, 10),
    (f"{FRONT}system:\nQ: {{{{question}}}}\n{R}", BREAK, 10),
    (f"---\nname: [shop\n---\nsystem:\n{R}", ERROR, 3),
    (f"---\nname: shop\nsystem:\n{R}", ERROR, 1),
    (f"{FRONT}system:\n{{% if a %}}\n{R}", ERROR, 10),
    (f"---\nname: m\ntemplate:\n  type: mustache\n---\n{{{{#user}}}}a{{{{/user}}}}\n{R}", OK, None),
    (f"---\nname: m\ntemplate: mustache\n---\n{{{{#a}}}}\n{R}", ERROR, 5),
    (f"---\nsample:\n  now: '{{{{now}}}}'\n---\nsystem:\n{R}", OK, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), PROMPTY)
def test_prompty(tmp_path, text, verdict, line):
    _check(tmp_path, text, "chat.prompty", verdict, line)


DOTPROMPT = [
    (f'{DOT}{{{{role "system"}}}}\n{R}{{{{role "user"}}}}\n{{{{question}}}}\n', OK, None),
    (f'{DOT}{{{{role "system"}}}}\nIt is {{{{currentDate}}}}.\n{R}', WARN, 5),
    (f"{DOT}Hello {{{{userName}}}}.\n{R}", BREAK, 4),
    (f"{DOT}{{{{#each docs}}}}\n- {{{{this.title}}}}\n{{{{/each}}}}\n{R}", BREAK, 4),
    (f"{DOT}{{{{#if customer}}}}Hello {{{{customer.name}}}}.{{{{/if}}}}\n{R}", WARN, 4),
    (f"{DOT}{{{{! {{now}} }}}}{{{{>header}}}}\n{R}{{{{history}}}}\n{{{{message}}}}", OK, None),
    (f"{DOT}{{{{#if a}}}}b\n{R}", ERROR, 4),
    (f"{DOT}{R}{{{{#each a}}}}b{{{{/if}}}}\n", ERROR, 10),
    (f"---\nmodel: [a\n---\n{{{{role \"user\"}}}}\n{R}", ERROR, 3),
    (f"# Licence\n#\n---\nmodel: a/b\n---\n{{{{@auth.email}}}}\n{R}", BREAK, 6),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), DOTPROMPT)
def test_dotprompt(tmp_path, text, verdict, line):
    report = _check(tmp_path, text, "shop.prompt", verdict, line)
    assert report.format in {"dotprompt", "unreadable"}


HANDLEBARS = [
    (f"{R}{{{{question}}}}\n", OK, None),
    (f"{{{{region}}}}\n{R}{{{{question}}}}\n", WARN, 1),
    (f"{{{{question}}}}\n{R}", BREAK, 1),
    (f"{{{{#unless a}}}}x{{{{else}}}}{{{{session_id}}}}{{{{/unless}}}}\n{R}", WARN, 1),
    (f"{{{{^a}}}}\n{R}{{{{/a}}}}", OK, None),
    (f"{{{{^a}}}}\n{R}", ERROR, 1),
    ("One.\n" + '{{#message role="system"}}Hello {{customer.name}}{{/message}}\n' + R, BREAK, 2),
    ("{{customer.name}}\n{{#each history}}<m '{{role}}'>{{content}}</m>{{/each}}\n", BREAK, 1),
    ("Be short.\n{{#each history}}{{this.role}}: {{this.content}}{{/each}}\n", OK, None),
    ("{{#each history}}{{this.role}}: {{this.content}}{{/each}}\n" + R, BREAK, 1),
    ("{{ if .System }}{{ .System }}{{ end }}{{ range .Messages }}{{ .Role }}{{ end }}", OK, None),
    ("It is {{ .Now }}.\n" + R, BREAK, 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), HANDLEBARS)
def test_handlebars(tmp_path, text, verdict, line):
    _check(tmp_path, text, "shop.hbs", verdict, line)


KERNEL = [
    (f"{R}{{{{$input}}}}\n", OK, None),
    (f"Region: {{{{$region}}}}\n{R}{{{{$input}}}}\n", WARN, 1),
    (f"Hi.\nToday is {{{{time.Now}}}}\n{R}{{{{$input}}}}\n", BREAK, 2),
    (f"{{{{$history}}}}\n{R}{{{{$input}}}}\n", BREAK, 1),
    (f"{{{{recall $input}}}}\n{R}{{{{$input}}}}\n", BREAK, 1),
    (f"{{{{MathPlugin.Add $amount}}}}\n{R}{{{{$input}}}}\n", OK, None),
    (f"{R}{{{{$input\n", ERROR, 7),
    (f"{{{{$firstName}}}} {{{{$lastName}}}}\n{R}", BREAK, 1),
]


@pytest.mark.parametrize(("text", "verdict", "line"), KERNEL)
def test_semantic_kernel(tmp_path, text, verdict, line):
    report = _check(tmp_path, text, "QA/skprompt.txt", verdict, line)
    assert report.format in {"semantic-kernel", "unreadable"}


TYPES = """class Invoice {
  number string
  total float @description("with tax")
  lines Line[]
}
class Line { text string  price float  taxed bool  currency Currency }
enum Currency { EUR  USD  GBP  CHF  JPY }
"""


def baml(prompt: str, returns: str = "Invoice") -> str:
    return (
        f'{TYPES}\nfunction Read(document: string) -> {returns} {{\n  client "a/b"\n{prompt}\n}}\n'
    )


BAML = [
    (baml('  prompt #"\n    Read.\n  {{ ctx.output_format }}\n    {{ document }}\n  "#'), OK, None),
    (baml('  prompt #"\n    {{ document }}\n    {{ ctx.output_format }}\n  "#'), BREAK, 12),
    (baml('  prompt #"\n    {{ document }}\n  {{ ctx.output_format }}\n  "#', "string"), OK, None),
    (baml('  prompt #"\n    {{ today }}\n    {{ ctx.output_format(prefix="a") }}\n  "#'), WARN, 12),
    (baml('  prompt #"\n    {{ document }}\n  '), ERROR, 11),
    (baml('  prompt #"\n    {% if %}\n    {{ document }}\n  "#'), ERROR, 12),
    (f'template_string Head(now: string) #"\n  {{{{ now }}}}\n{R}"#\n', BREAK, 2),
    ('test T {\n  functions [Read]\n  args { document #"{{ now }}"# }\n}\n' + TYPES, ERROR, 1),
    (baml('  // prompt #"{{ now }}\n  prompt ##"\n    {{ _.role("system") }}\n' + R
          + '    {{ document }} #" "##'), OK, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), BAML)
def test_baml(tmp_path, text, verdict, line):
    _check(tmp_path, text, "read.baml", verdict, line)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.prompty", f"{FRONT}system:\n At {{{{now}}}}\n{R}", (10, 5)),
        ("a.prompt", f"---\nmodel: m\n---\n\n At {{{{now}}}}\n{R}", (5, 5)),
        ("a.hbs", f"\nAt {{{{now}}}}\n{R}", (2, 4)),
        ("skprompt.txt", f"\nAt {{{{time.Now}}}}\n{R}", (2, 4)),
        ("a.baml", f'\ntemplate_string A() #"\n At {{{{ now }}}}\n{R}"#', (3, 5)),
        ("a.yaml", "prompt: |\n  At {{ now }}\n  " + R.replace("\n", "\n  "), (2, 6)),
        ("a.toml", f'[shop]\nprompt = """\nAt {{{{ now }}}}\n{R}"""\n', (3, 4)),
        ("a.py", f'import a\nPROMPT = """é At {{now}}\n{R}"""\n', (2, 18)),
        ("a.py", f'import a\nPROMPT = (f"é "\n  f"At {{time.time()}}"\n  """{R}""")\n', (3, 8)),
        ("a.go", f"package a\n\nconst systemPrompt = `At {{{{ now }}}}\n{R}`\n", (3, 26)),
        ("a.ts", f"function prompt() {{\n  return `At ${{Date.now()}}\n{R}`\n}}\n", (2, 14)),
    ],
)
def test_places_in_every_format(tmp_path, name, text, place, newline, mark):
    report = lint_text(tmp_path, mark + text.replace("\n", newline).encode(), name)
    assert report.verdict in {BREAK, WARN}
    found = next(f for f in report.findings if f.rule == "PFX101").location
    assert (found.line, found.column) == place


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("Say {{ now }} é".encode("latin-1"), "byte 14 is 0xE9"),
        ("Say {{ now }}".encode("utf-32")[:-1], "broken UTF-32"),
        ("鏡花水月繚亂".encode("gbk"), "it may be GBK"),
    ],
)
@pytest.mark.parametrize("name", ["a.prompty", "a.py", "a.yaml", "a.hbs", "a.go"])
def test_encodings_are_named(tmp_path, data, words, name):
    report = lint_text(tmp_path, data, name)
    assert report.verdict is ERROR
    assert words in report.findings[0].message


@pytest.mark.parametrize("name", ["a.ipynb", "a.csv", "a.jsonl", "a.html", "a.log", "a.sql"])
def test_a_wrong_type_is_no_clean_pass(tmp_path, name):
    assert lint_text(tmp_path, R, name).verdict is ERROR


def _check(tmp_path, text, name, verdict, line):
    report = lint_text(tmp_path, text, name)
    assert report.verdict is verdict, report.findings
    if line is not None:
        assert line in {f.location.line for f in report.findings}
    if verdict is OK:
        assert not [f for f in report.findings if f.severity.label == "error"]
    return report
