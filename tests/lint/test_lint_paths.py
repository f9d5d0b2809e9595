"""`lint.paths`: rules, severities and scopes for some paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from linting import static

from prefixctl.api.lint import lint_paths
from prefixctl.config import load_config
from prefixctl.core.findings import Severity, Verdict
from prefixctl.errors import ConfigError
from prefixctl.lint.report import LintReport

BODY = static(80)
CLOCK = "It is {{ strftime_now('%H:%M:%S') }}.\n" + BODY


@pytest.fixture
def linted(tmp_path: Path):
    def call(entries: str, **files: str) -> LintReport:
        (tmp_path / "prefixctl.yaml").write_text(f"lint:\n  paths:\n{entries}")
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path = path.with_name(path.name.replace("_", "."))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return lint_paths(load_config(tmp_path / "prefixctl.yaml"), [tmp_path])

    return call


def rules(report: LintReport, name: str) -> list[str]:
    return [f.rule for f in next(r for r in report.files if r.path.endswith(name)).findings]


def test_ignore_and_select_hold_for_the_paths_that_match(linted):
    report = linted(
        "  - {match: 'old/*', ignore: [clock-in-prefix]}\n"
        "  - {match: ['new/*', 'b.jinja'], select: [PFX2, PFX301]}\n",
        old__a_jinja=CLOCK, new__a_jinja=CLOCK, x__b_jinja=CLOCK, x__c_jinja=CLOCK,
    )  # fmt: skip
    assert "PFX101" not in rules(report, "old/a.jinja")
    assert "PFX101" not in rules(report, "new/a.jinja")
    assert "PFX101" not in rules(report, "x/b.jinja")
    assert "PFX101" in rules(report, "x/c.jinja")
    assert sum(r.ignored for r in report.files) == 3
    assert {r.verdict for r in report.files} == {Verdict.BREAK}


def test_a_later_entry_wins_and_severity_decides_what_fails(linted):
    report = linted(
        "  - {match: '*', severity: {PFX101: info}}\n"
        "  - {match: 'b.jinja', severity: {clock-in-prefix: warning}}\n",
        a_jinja=CLOCK, b_jinja=CLOCK,
    )  # fmt: skip
    severity = {r.path[-7:]: f.severity for r in report.files for f in r.findings
                if f.rule == "PFX101"}  # fmt: skip
    assert severity == {"a.jinja": Severity.INFO, "b.jinja": Severity.WARNING}
    assert not report.reaches(Severity.ERROR)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a_jinja", "For {{ persona_text }}.\n"),
        ("a_jinja", "{% set p = persona_text %}For {{ p }}.\n"),
        ("a_jinja", "{% if persona_text == 'x' %}A{% else %}B{% endif %}\n"),
        ("prompts_py", 'SYSTEM_PROMPT = f"""For {persona_text}.\n'),
    ],
)
@pytest.mark.parametrize(("scope", "rule"), [("user", "PFX103"), ("constant", None)])
def test_declared_scopes_go_before_names(linted, name, text, scope, rule):
    end = '"""\n' if name.endswith("_py") else ""
    report = linted(
        f"  - {{match: '*', variables: {{persona_text: {scope}}}}}\n",
        **{name: text + BODY + end},
    )
    found = [f.rule for f in report.findings if f.rule.startswith("PFX1")]
    assert found == ([rule] if rule else [])


def test_a_part_of_a_variable_may_be_declared(linted):
    report = linted(
        "  - {match: '*', variables: {user.plan: deployment}}\n",
        a_jinja="{{ user.plan }}\n" + BODY, b_jinja="{{ user.name }}\n" + BODY,
    )  # fmt: skip
    assert rules(report, "a.jinja") != rules(report, "b.jinja") == ["PFX103"]


def test_a_governed_prompt_is_configured_too(linted, tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "prompt.yaml").write_text(
        "sections:\n- {kind: system_prompt, file: s.md.j2}\nparameters:\n  who: {scope: user}\n"
    )
    (folder / "s.md.j2").write_text("{{ who }}\n" + BODY)
    assert "PFX103" in rules(linted("  - {match: zzz}\n"), "prompt.yaml")
    assert "PFX103" not in rules(linted("  - {match: 'p/*', ignore: [PFX103]}\n"), "prompt.yaml")


def test_the_cache_hears_of_a_changed_configuration(tmp_path):
    (tmp_path / "a.jinja").write_text(CLOCK)
    config = tmp_path / "prefixctl.yaml"
    counts = []
    for entries in ("[]", "[{match: '*', ignore: [PFX1]}]", "[]"):
        config.write_text(f"lint: {{paths: {entries}}}\n")
        report = lint_paths(load_config(config), [tmp_path], cache=True)
        counts.append(len(report.findings))
    assert counts[0] == counts[2] > counts[1] == 0


@pytest.mark.parametrize(
    ("entry", "words", "hint"),
    [
        ("{match: '*', ignore: [PFX999]}", "lint.paths[0].ignore: no rule 'PFX999'", "PFX"),
        ("{match: '*', select: [clock-prefix]}", "no rule 'clock-prefix'", "clock-in-prefix"),
        ("{match: '*', severity: {PFX: error, nope: info}}", "no rule 'nope'", ""),
        ("{match: '*', ignore: [unreadable-file]}", "PFX000 cannot be ignored", "lint.exclude"),
    ],
)
def test_a_wrong_rule_is_named(tmp_path, entry, words, hint):
    (tmp_path / "a.jinja").write_text(CLOCK)
    config = tmp_path / "prefixctl.yaml"
    config.write_text(f"lint:\n  paths:\n  - {entry}\n")
    with pytest.raises(ConfigError) as caught:
        lint_paths(load_config(config), [tmp_path])
    assert words in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.path == str(config)


@pytest.mark.parametrize(
    ("entry", "words", "line"),
    [
        ("{match: '*', ingore: [PFX1]}", "unknown key 'lint.paths.0.ingore'", 3),
        ("{ignore: [PFX1]}", "'lint.paths.0.match' is missing", 3),
        ("{match: []}", "lint.paths.0.match", 3),
        ("{match: '*', severity: {PFX1: bad}}", "lint.paths.0.severity.PFX1", 3),
        ("{match: '*', variables: {a: weekly}}", "'weekly' is no scope", 3),
    ],
)
def test_a_wrong_key_is_named_with_its_line(tmp_path, entry, words, line):
    config = tmp_path / "prefixctl.yaml"
    config.write_text(f"lint:\n  paths:\n  - {entry}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(config)
    assert words in caught.value.message
    assert caught.value.line == line


def test_the_schema_for_editors_knows_it():
    from prefixctl.config import Config

    schema = json.dumps(Config.model_json_schema())
    assert "LintPathConfig" in schema
    assert '"tenant"' in schema


OWN = "delimiters: {variable: ['[[', ']]'], block: ['[%', '%]'], comment: ['[#', '#]']}"


def test_delimiters_of_its_own(linted):
    text = (
        "Write {{ as it is }} and {% so %} in\nplain JSON. [# nothing #]\n"
        "[% if loud %]Now [[ strftime_now('%H:%M:%S') ]].[% endif %]\n" + BODY
    )
    report = linted(f"  - {{match: '*.jinja', {OWN}}}\n", a_jinja=text)
    (file,) = report.files
    clock = next(f for f in file.findings if f.rule == "PFX101")
    assert (clock.location.line, clock.location.column) == (3, 18)
    assert file.lines[clock.location].startswith("[% if loud %]Now [[ strftime_now")
    assert [v.variable for v in file.values] == ["strftime_now"]
    assert linted("  - {match: nothing}\n", a_jinja=text).files[0].verdict is Verdict.OK


def test_included_templates_have_the_same_delimiters(linted):
    report = linted(
        f"  - {{match: '*.jinja', {OWN}}}\n",
        a_jinja="[% include 'b.jinja' %]\n" + BODY, b_jinja="Hello [[ user_name ]].\n",
    )  # fmt: skip
    assert "PFX103" in rules(report, "a.jinja")


def test_a_suppression_in_a_comment_of_its_own(linted):
    text = "[# prefixctl: allow PFX103 on purpose #]\nHello [[ user_name ]].\n" + BODY
    report = linted(f"  - {{match: '*.jinja', {OWN}}}\n", a_jinja=text)
    assert report.findings == ()
    assert [s.reason for s in report.files[0].suppressed] == ["on purpose"]


@pytest.mark.parametrize("marks", ["['[', ']']", "['[[']", "['[ ', ' ]']", "'[[ ]]'"])
def test_delimiters_have_two_characters(tmp_path, marks):
    config = tmp_path / "prefixctl.yaml"
    config.write_text(f"lint:\n  paths:\n  - match: x\n    delimiters: {{variable: {marks}}}\n")
    with pytest.raises(ConfigError, match=r"lint\.paths\.0\.delimiters\.variable"):
        load_config(config)


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path):
    root = tmp_path / "a[1]*"
    (root / "old").mkdir(parents=True)
    (root / "old" / "p.jinja").write_text(CLOCK)
    (root / "prefixctl.yaml").write_text("lint: {paths: [{match: './old/*', ignore: [PFX101]}]}\n")
    report = lint_paths(load_config(root / "prefixctl.yaml"), [root])
    assert sum(f.ignored for f in report.files) == 1
