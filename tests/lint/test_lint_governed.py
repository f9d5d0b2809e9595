"""Governed prompts: declared scopes, the target's tokenizer, the lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from linting import static

from prefixctl.api.lint import lint_paths
from prefixctl.api.versions import bump_prompts
from prefixctl.config import load_config
from prefixctl.core.findings import Severity, Verdict
from prefixctl.core.prompt import Volatility

YAML = """\
sections:
  - {kind: system_prompt, file: system.md.j2}
  - {kind: user, file: user.md.j2}
parameters:
  product: {scope: SCOPE, examples: [tent]}
  question: {scope: request, examples: [why]}
"""


@pytest.fixture
def prompt(tmp_path: Path):
    def make(scope: str, *, system: str = "Sell {{ product }}.\n", yaml: str = YAML) -> Path:
        folder = tmp_path / "templates" / "shop"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prompt.yaml").write_text(yaml.replace("SCOPE", scope))
        (folder / "system.md.j2").write_text(system + static(80))
        (folder / "user.md.j2").write_text("{{ question }}")
        return folder

    return make


def lint(folder: Path):
    config = load_config(start=folder.parents[1])
    return lint_paths(config, [folder]).files[0]


@pytest.mark.parametrize(
    ("scope", "verdict", "rule"),
    [
        ("second", Verdict.BREAK, "PFX101"),
        ("hour", Verdict.WARN, "PFX101"),
        ("user", Verdict.BREAK, "PFX103"),
        ("tenant", Verdict.WARN, "PFX104"),
        ("session", Verdict.BREAK, "PFX105"),
        ("request", Verdict.BREAK, "PFX106"),
        ("deployment", Verdict.WARN, "PFX107"),
    ],
)
def test_declared_scopes_decide(prompt, scope, verdict, rule):
    report = lint(prompt(scope))
    assert (report.format, report.verdict) == ("governed", verdict)
    (finding,) = report.findings
    assert finding.rule == rule
    assert finding.volatility is Volatility[scope.upper()]
    assert finding.location.path.endswith("system.md.j2")
    assert (finding.location.line, finding.location.column) == (1, 6)


def test_a_declared_scope_goes_before_a_name(prompt):
    yaml = YAML.replace(
        "product: {scope: SCOPE, examples: [tent]}", "now: {scope: version, value: x}"
    )
    report = lint(prompt("", yaml=yaml, system="Now: {{ now }}\n"))
    assert report.verdict is Verdict.OK
    assert not report.findings


def test_a_literal_section_has_no_holes(prompt):
    folder = prompt("request", system="Sell.\n")
    (folder / "prompt.yaml").write_text(
        YAML.replace("system.md.j2", "system.md").replace("SCOPE", "request")
    )
    (folder / "system.md").write_text("Now: {{ now }} {today}\n" + static(80))
    assert lint(folder).verdict is Verdict.OK


def test_a_broken_prompt_is_an_error_at_its_place(prompt):
    report = lint(prompt("weekly"))
    assert report.verdict is Verdict.ERROR
    assert report.findings[0].location.path.endswith("prompt.yaml")
    folder = prompt("user", system="{% if %}")
    report = lint(folder)
    assert report.verdict is Verdict.ERROR
    assert report.findings[0].location.path.endswith("system.md.j2")


def test_a_changed_file_stands_for_its_prompt(prompt):
    folder = prompt("user")
    config = load_config(start=folder.parents[1])
    for named in (folder / "prompt.yaml", folder / "system.md.j2", folder.parent):
        (report,) = lint_paths(config, [named]).files
        assert report.format == "governed"


def test_content_without_a_bump(prompt):
    folder = prompt("user", system="Sell.\n")
    unbumped = [f for f in lint(folder).findings if f.rule == "PFX501"]
    assert not unbumped, "nothing was ever bumped, so versions are not in use here"
    bump_prompts(load_config(start=folder.parents[1]), reason="first", author="test")
    assert not lint(folder).findings
    (folder / "system.md.j2").write_text("Buy.\n" + static(80))
    (finding,) = lint(folder).findings
    assert (finding.rule, finding.severity) == ("PFX501", Severity.ERROR)
    assert "system.md.j2" in finding.message
    assert "bump shop" in finding.advice


def test_exact_tokens_of_a_target(project: Path):
    config = load_config(start=project)
    (report,) = lint_paths(config, target="tiny").files
    assert report.tokens_exact
    assert report.verdict is Verdict.OK
    assert report.full_blocks == report.prefix_tokens // 16
    assert report.prefix_tokens < report.total_tokens


def test_a_prefix_below_one_block_and_a_tail(project: Path):
    config = load_config(start=project)
    shared = lint_paths(config, target="tiny").files[0].prefix_tokens

    def findings(block_size: int):
        target = config.targets["tiny"].model_copy(update={"block_size": block_size})
        changed = config.model_copy(update={"targets": {"tiny": target}})
        return lint_paths(changed, target="tiny").files[0].findings

    (short,) = findings(4096)
    assert (short.rule, short.severity) == ("PFX301", Severity.INFO)
    (tail,) = findings(shared * 2 // 3)
    assert (tail.rule, tail.tokens_lost) == ("PFX302", shared - shared * 2 // 3)
    assert not findings(shared)


def test_a_configured_block_size_is_known(project: Path):
    (project / "prefixctl.yaml").write_text("lint: {block_size: 100000}\n")
    (report,) = lint_paths(load_config(start=project)).files
    assert [f.rule for f in report.findings] == ["PFX301"]
    assert "about" in report.findings[0].message
