"""`prefixctl settings` as users meet it: text, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from prefixctl.cli import settings
from prefixctl.errors import NothingToDoError, PrefixctlError

app = typer.Typer(pretty_exceptions_enable=False)
settings.register(app)
GOOD = "vllm serve m --enable-prompt-tokens-details\n"


@app.callback()
def options(context: typer.Context) -> None:
    """Stands for the options of the real program."""
    context.obj = None


@pytest.fixture
def run(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*words: str):
        result = CliRunner().invoke(app, ["settings", *words])
        if isinstance(result.exception, PrefixctlError):
            return result.exception.exit_code, str(result.exception)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout

    return call


def test_exit_codes(run, tmp_path: Path):
    (tmp_path / "good.sh").write_text(GOOD)
    (tmp_path / "bad.sh").write_text(GOOD.replace("serve m", "serve m --no-enable-prefix-caching"))
    (tmp_path / "warn.sh").write_text("vllm serve m\n")
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "other.sh").write_text("echo hello\n")
    (tmp_path / "empty").mkdir()
    assert run("good.sh")[0] == 0
    assert run("bad.sh")[0] == 1
    assert run("bad.sh", "--fail-on", "never")[0] == 0
    assert run("warn.sh")[0] == 0
    assert run("warn.sh", "--fail-on", "warning")[0] == 1
    assert run("good.sh", "broken.yaml")[0] == 3
    for nothing in ("other.sh", "empty", "missing.sh"):
        assert run(nothing)[0] == 3
    assert run("good.sh", "--target", "nowhere")[0] == 3


def test_text_has_place_excerpt_and_advice(run, tmp_path: Path):
    (tmp_path / "run.sh").write_text("vllm serve m --no-enable-prefix-caching --api-key s3cret-x\n")
    _, out = run("run.sh")
    assert "run.sh:1:14: error PFX601 " in out
    assert "\n    |              ^\n" in out
    assert "advice: " in out
    assert "s3cret" not in out
    assert "about" not in out.splitlines()[-1]


def test_json_is_lints_shape(run, tmp_path: Path):
    (tmp_path / "run.sh").write_text("vllm serve m\n")
    (tmp_path / "other.sh").write_text("ls\n")
    code, out = run("run.sh", "other.sh", "--format", "json")
    value = json.loads(out)
    assert (code, value["passed_over"]) == (0, ["other.sh"])
    (file,) = value["files"]
    assert (file["format"], file["verdict"]) == ("shell", "warn")
    assert file["findings"][0]["rule"] == "PFX602"


def test_a_folder_is_searched(run, tmp_path: Path):
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "Dockerfile").write_text('FROM vllm/vllm-openai\nCMD ["--model", "m"]\n')
    (tmp_path / "deploy" / "broken.yaml").write_text("unrelated: [")
    code, out = run("deploy")
    assert (code, "PFX602" in out) == (0, True)


def test_nothing_found_says_what_to_give(tmp_path: Path):
    from prefixctl.api.settings import check_launch_files
    from prefixctl.config import Config

    (tmp_path / "a.sh").write_text("ls")
    with pytest.raises(NothingToDoError) as caught:
        check_launch_files(Config().at(tmp_path), [tmp_path / "a.sh"])
    assert "compose" in (caught.value.hint or "")


def test_the_lock_gives_governed_prompts(project: Path):
    from prefixctl.api.settings import check_launch_files
    from prefixctl.api.versions import bump_prompts
    from prefixctl.config import load_config

    config = load_config(project / "prefixctl.yaml")
    bump_prompts(config, reason="first", author="a")
    start = project / "run.sh"
    start.write_text(
        "vllm serve tiny-model --enable-prompt-tokens-details --max-model-len 16 --block-size 4096 "
        "--prefix-caching-hash-algo sha256_cbor\n"
    )
    report = check_launch_files(config, [start]).report
    assert [f.rule for f in report.findings] == ["PFX607", "PFX606", "PFX609"]


SCRIPT = """\
#!/bin/sh
# prefixctl: allow PFX601 measured without the cache on purpose
vllm serve m \\
  --no-enable-prefix-caching \\
  --enable-prompt-tokens-details
"""


def test_a_comment_allows_a_finding(run, tmp_path: Path):
    (tmp_path / "run.sh").write_text(SCRIPT)
    code, out = run("run.sh")
    assert code == 0
    assert "1 allowed" in out
    (tmp_path / "run.sh").write_text(SCRIPT.replace(" --no-enable-prefix-caching \\\n", ""))
    code, out = run("run.sh", "--fail-on", "warning")
    assert code == 1
    assert "`PFX601` is allowed here, but finds nothing here" in out
    compose = (
        "services:\n  a:\n    image: vllm/vllm-openai\n    command:\n      - m\n"
        "      - --enable-prompt-tokens-details\n"
        "      - --no-enable-prefix-caching  # prefixctl: allow prefix-caching-off a test\n"
    )
    (tmp_path / "compose.yaml").write_text(compose)
    assert run("compose.yaml")[0] == 0
    (tmp_path / "compose.yaml").write_text(compose.replace("prefix-caching-off", "PFX101"))
    assert run("compose.yaml")[0] == 1


def test_a_comment_beside_a_secret_shows_no_secret(run, tmp_path: Path):
    (tmp_path / "run.sh").write_text(
        "vllm serve m --enable-prompt-tokens-details --api-key s3cret-x  "
        "# prefixctl: allow PFX602 x\n"
    )
    for form in ("text", "json", "sarif"):
        code, out = run("run.sh", "--format", form)
        assert code == 1
        assert "finds nothing here" in out
        assert "s3cret" not in out


def test_a_baseline_serves_settings_and_lint(run, tmp_path: Path):
    (tmp_path / "bad.sh").write_text(GOOD.replace("serve m", "serve m --no-enable-prefix-caching"))
    known = {"path": "p.jinja", "rule": "PFX101", "fingerprint": "f"}
    base = tmp_path / "base.json"
    base.write_text(json.dumps({"schema": 1, "findings": [known]}))
    assert run("bad.sh", "--write-baseline", "base.json")[0] == 0
    kept = json.loads(base.read_text())["findings"]
    assert [k["rule"] for k in kept] == ["PFX601", "PFX101"]
    code, out = run("bad.sh", "--baseline", "base.json")
    assert (code, "1 in the baseline" in out) == (0, True)
    (tmp_path / "prefixctl.yaml").write_text("lint: {baseline: base.json}\n")
    assert run("bad.sh")[0] == 0
    (tmp_path / "bad.sh").write_text(GOOD)
    assert "no longer has the PFX601" in run("bad.sh")[1]
    base.write_text("nonsense")
    assert run("bad.sh", "--write-baseline", "base.json")[0] == 3
    assert base.read_text() == "nonsense"
    assert run("bad.sh", "--baseline", "base.json", "--write-baseline", "b")[0] == 2


def test_sarif_and_the_other_formats(run, tmp_path: Path):
    (tmp_path / "run.sh").write_text(SCRIPT + "vllm serve m --api-key s3cret-x\n")
    log = json.loads(run("run.sh", "--format", "sarif")[1])
    found = {r["ruleId"]: r for r in log["runs"][0]["results"]}
    assert found["PFX601"]["suppressions"][0]["kind"] == "inSource"
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in found.values())
    for form in ("sarif", "github", "gitlab", "junit", "json"):
        assert "s3cret" not in run("run.sh", "--format", form)[1]
    assert "::error file=run.sh" in run("run.sh", "--format", "github")[1]


def test_paths_of_the_configuration(run, tmp_path: Path):
    (tmp_path / "bad.sh").write_text(GOOD.replace("serve m", "serve m --no-enable-prefix-caching"))
    (tmp_path / "prefixctl.yaml").write_text("lint: {paths: [{match: bad.sh, ignore: [PFX601]}]}\n")
    code, out = run("bad.sh")
    assert (code, "1 ignored by the configuration" in out) == (0, True)
