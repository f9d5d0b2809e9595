"""Prompts in source code: Python, and Go, TypeScript, Java and their like."""

from __future__ import annotations

from pathlib import PurePath
from textwrap import indent

import pytest
from linting import lint_text, static

from prefixctl.core.findings import Verdict
from prefixctl.lint.readers.any_file import may_hold_a_prompt

OK, WARN, BREAK, ERROR = Verdict.OK, Verdict.WARN, Verdict.BREAK, Verdict.ERROR
R = static(60)
LONG = static(140)
IMPORTS = "import uuid\nfrom datetime import date, datetime\n"


def function(body: str, name: str = "build") -> str:
    return f"{IMPORTS}def {name}(question, context, user):\n{indent(body, '    ')}\n"


PYTHON = [
    (f'PROMPT = """{R}{{question}}"""', OK, None),
    (f'PROMPT = """{{date}}\n{R}"""', WARN, 1),
    (f'PROMPT = """a\n{{question}}\n{R}"""', BREAK, 2),
    ("def f(:\n", ERROR, 1),
    ("x = 1\n", ERROR, 1),
    # A clock that the module reads when it is imported is fixed for the process.
    (f'{IMPORTS}PROMPT = f"""It is {{datetime.now()}}.\n{R}"""', WARN, 3),
    (f'{IMPORTS}NOW = datetime.now()\nPROMPT = f"""It is {{NOW}}.\n{R}"""', WARN, 3),
    (f'{IMPORTS}ID = str(uuid.uuid4())\nPROMPT = f"""{{ID}}.\n{R}"""', WARN, 3),
    (f'{IMPORTS}class A:\n    prompt = f"""{{date.today()}}.\n{R}"""', WARN, 4),
    # In a function it is read at every call.
    (function(f'return f"""At {{datetime.now()}}.\n{R}"""', "prompt"), BREAK, 4),
    (function(f'return f"""At {{datetime.now():%Y-%m-%d}}.\n{R}"""', "prompt"), WARN, 4),
    (function(f'return f"""At {{date.today()}}.\n{R}"""', "prompt"), WARN, 4),
    (function(f'now = datetime.now().strftime("%H:%M")\nprompt = f"""At {{now}}\n{R}"""\n'
              "return prompt"), BREAK, 4),
    # Names: a plain one counts, a hint only where much stands behind it, and then as a warning.
    (function(f'return f"""{{question}}\n{R}"""', "prompt"), BREAK, 4),
    (function(f'return f"""{{context}}\n{R}"""', "prompt"), OK, None),
    (function(f'return f"""{{context}}\n{LONG}"""', "prompt"), WARN, 4),
    (f'PROMPT = """{{context}}\n{R}"""', BREAK, 1),
    # Ways to put a string together.
    (f'R = """{R}"""\nPROMPT = "{{question}}\\n" + R', BREAK, 8),
    (f'PROMPT = Template("""$question\n{R}""")', BREAK, 1),
    (f'PROMPT = """{{{{ question }}}}\n{R}"""', BREAK, 1),
    (f'PROMPT = """{{{{"a": 1}}}} {R}{{question}}"""', OK, None),
    (function(f'return """%s\n{R}""" % question', "prompt"), BREAK, 11),
    (function(f'return """%(q)s\n{R}""" % {{"q": question}}', "prompt"), BREAK, 11),
    (function(f'return """{{}}\n{R}""".format(question)', "prompt"), BREAK, 11),
    (function(f'return """{{q}}\n{R}""".format(q=question)', "prompt"), BREAK, 4),
    (function(f'prompt = f"{{user.name}}: "\nprompt += """{R}"""\nreturn prompt'), BREAK, 4),
    (function(f'parts = [f"{{user.id}}"]\nif a:\n    parts.append("""{R}""")\n'
              'return "\\n".join(parts)', "prompt"), OK, None),
    (function(f'p = """{R}"""\nif user:\n    p += f"{{user.name}}"\nreturn p', "prompt"), OK, None),
    # Message lists are whole prompts.
    (function(f'return [{{"role": "system", "content": f"""{{user.id}}\n{R}"""}}]'), BREAK, 4),
    (function(f'return [("system", """{R}"""), ("human", "{{question}}")]'), OK, None),
    (function(f'return [SystemMessage(content="""{R}"""), HumanMessage(question)]'), OK, None),
    (function(f'x = call(messages=[{{"role": "user", "content": question}},\n'
              f' {{"role": "user", "content": """{R}"""}}])'), BREAK, 4),
    # Text that is for people, or for a database.
    (f'PROMPT = "{{q}} is it"\n"""{{now}} {R}"""\nprint(f"""{{now}} {R}""")', OK, None),
    (f'PROMPT = "{{q}} is it"\nSQL = """SELECT {{now}} FROM you are {R}"""', OK, None),
    (function(f'raise ValueError(f"""{{question}} {R}""")') + '\nPROMPT = "{q} is it"', OK, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), PYTHON)
def test_python(tmp_path, text, verdict, line):
    _check(tmp_path, text, "app.py", verdict, line)


def test_what_is_read_at_import_says_so(tmp_path):
    text = f'{IMPORTS}PROMPT = f"""It is {{datetime.now():%Y-%m-%d}}.\n{R}"""'
    (finding,) = lint_text(tmp_path, text, "p.py").findings
    assert "when the process starts" in finding.message
    assert finding.rule == "PFX101"


def test_escapes_and_pieces_move_no_place(tmp_path):
    text = 'PROMPT = (\n  r"a\\n"  # one\n  "\\u00e9\\n\\x41 {question} "\n  """' + R + '""")'
    (finding,) = lint_text(tmp_path, text, "p.py").findings
    assert (finding.location.line, finding.location.column) == (3, 17)


TYPESCRIPT = [
    (f"export const PROMPT = `{R}${{question}}`;", OK, None),
    (f"const PROMPT = (d: Day) => `Today: ${{new Date().toDateString()}}\n{R}`;", WARN, 1),
    (f"const PROMPT = `At ${{new Date().toISOString()}}\n{R}`;", WARN, 1),
    (f"const prompt = (x) => `At ${{new Date().toISOString()}}\n{R}`;", BREAK, 1),
    (f"function prompt(q) {{\n  return `Q: ${{userQuestion}}\n{R}`;\n}}", BREAK, 2),
    (f"function prompt() {{\n  return `${{a ? `b ${{c}}` : 0}}${{sessionId}}\n{R}`;\n}}", BREAK, 2),
    (f"const prompt = {{ system: `{R}` }}", OK, None),
    ("const systemPrompt = 'Q: ' + userQuestion + '. " + R.replace("\n", " ") + "';", BREAK, 1),
    (f"const PROMPT = `{{question}}\n{R}`;", BREAK, 1),
    (f"const PROMPT = `{{{{ now }}}}\n{R}`;", BREAK, 1),
    (f"// `a\n/* ` */ const r = /`/g; const PROMPT = `{R}`;", OK, None),
    (f"const PROMPT = `{R}", ERROR, 1),
    ("const a = 'b';", ERROR, 1),
    (f"const PROMPT = `ok ${{q}}`; console.log(`${{sessionId}} you are {R}`);", OK, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), TYPESCRIPT)
def test_typescript(tmp_path, text, verdict, line):
    _check(tmp_path, text, "app.ts", verdict, line)


GO_FUNC = "package a\nfunc prompt() string {\n\treturn "
GO = [
    (f"package a\nconst prompt = `{R}{{{{.Question}}}}`\n", OK, None),
    (f"package a\nconst prompt = `{{{{.Region}}}}\n{R}`\n", WARN, 2),
    (f"package a\nconst prompt = `{{{{ time }}}}\n{R}`\n", BREAK, 2),
    (f"package a\nconst prompt = `{{{{ .User.Name }}}}\n{R}`\n", BREAK, 2),
    (f"{GO_FUNC}fmt.Sprintf(`%s\n{R}`, userQuery)\n}}", BREAK, 10),
    (f'{GO_FUNC}fmt.Sprintf(`%s\n{R}`, time.Now().Format("2006-01-02"))\n}}',
     WARN, 10),
    (f"package a\nconst prompt = `{R}", ERROR, 2),
    ("package a\nvar r = 'a'\n", ERROR, 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "verdict", "line"), GO)
def test_go(tmp_path, text, verdict, line):
    _check(tmp_path, text, "app.go", verdict, line)


OTHERS = [
    ("A.java", f'class A {{ static final String PROMPT = """\n{{{{ now }}}}\n{R}"""; }}', BREAK, 2),
    ("A.java", f'class A {{ static final String PROMPT = """\n{R}{{question}}"""; }}', OK, None),
    ("A.java", f'class A {{ String PROMPT = """\n{R}', ERROR, 1),
    ("A.kt", f'val prompt = """At $currentDate\n{R}"""', WARN, 1),
    ("A.cs", f'const string Prompt = @"{{question}}\n{R}";', BREAK, 1),
    ("A.cs", f'const string Prompt = $"""\n{{userName}}\n{R}""";', BREAK, 2),
    ("a.rs", f'const PROMPT: &str = r#"{{question}}\n{R}"#;', BREAK, 1),
    ("a.rs", f'const PROMPT: &str = r#"{R}', ERROR, 1),
    ("a.rb", f"PROMPT = <<~TEXT\n#{{question}}\n{R}TEXT\n", BREAK, 2),
    ("a.rb", f"PROMPT = <<~TEXT\n{R}#{{question}}\nTEXT\n", OK, None),
    ("a.php", f"<?php\n$prompt = <<<EOT\n$question\n{R}EOT;\n", BREAK, 3),
    ("a.sh", f"PROMPT=$(cat <<EOF\n$TODAY\n{R}EOF\n)\n", WARN, 2),
    ("a.swift", f'let prompt = """\n{{{{ now }}}}\n{R}"""', BREAK, 2),
    ("a.js", f"module.exports.prompt = `{{{{ user_id }}}}\n{R}`", BREAK, 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "verdict", "line"), OTHERS)
def test_other_languages(tmp_path, name, text, verdict, line):
    _check(tmp_path, text, name, verdict, line)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("src/prompts.py", True),
        ("prompts/agent.ts", True),
        ("src/system_prompt.go", True),
        ("src/app.py", False),
        ("src/app.j2", True),
        ("a.baml", True),
        ("src/main.c", False),
    ],
)
def test_source_code_is_looked_at_if_its_name_speaks_of_prompts(path, wanted):
    assert may_hold_a_prompt(PurePath(path)) is wanted


HOSTILE = [
    ("a.py", 'P = "x" ' + '+ "y {a} you are "' * 3000),
    ("a.ts", "`" + "${`" * 20000),
    ("a.ts", "=/[" * 20000),
    ("a.rb", "<<A\n" * 20000),
    ("a.rs", 'r#"' * 20000),
    ("a.baml", '#"' * 20000),
    ("a.baml", "#" * 50000),
    ("a.hbs", "{{#if a}}" * 20000),
    ("skprompt.txt", "{{$" * 20000),
    ("a.prompt", "---\n" * 20000),
]


@pytest.mark.parametrize(("name", "text"), HOSTILE)
def test_hostile_files_end(tmp_path, name, text):
    lint_text(tmp_path, text, name)


def _check(tmp_path, text, name, verdict, line):
    report = lint_text(tmp_path, text, name)
    assert report.verdict is verdict, report.findings
    if line is not None:
        assert line in {f.location.line for f in report.findings}
    if verdict is OK:
        assert not [f for f in report.findings if f.severity.label == "error"]
