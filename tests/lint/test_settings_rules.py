"""Settings rules: their pages hold, each fires where it should and nowhere else."""

from __future__ import annotations

import re

import pytest

from prefixctl.config import TargetConfig
from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.hide import hide
from prefixctl.lint.settings.pages import setting_pages
from prefixctl.lint.settings.rule import Expected, GovernedPrefix, number
from prefixctl.lint.settings.rules import SETTING_MODULES, setting_rules
from prefixctl.lint.settings.run import Known, check_settings
from prefixctl.sources.settings.launch import Launch
from prefixctl.sources.settings.read import parse_settings
from prefixctl.sources.settings.text import SourceFile

PAGES = setting_pages()
NAMES = {"bash": "run.sh", "yaml": "compose.yaml", "dockerfile": "Dockerfile"}
PREFIXES = (
    GovernedPrefix(name="support", shared_tokens=700, request_tokens=900),
    GovernedPrefix(name="greeting", shared_tokens=9, request_tokens=20),
)
FULL = "--enable-prompt-tokens-details --prefix-caching-hash-algo sha256_cbor"


def check(text: str, name: str = "run.sh", **target: object) -> list[Finding]:
    """The findings on a text, with a target for the model acme/chat-8b if one is described."""
    settings = TargetConfig.model_validate({"model": "acme/chat-8b", **target})

    def target_of(launch: Launch) -> Expected | None:
        wanted = bool(target) and launch.model == settings.model
        return Expected(name="chat", settings=settings) if wanted else None

    file = parse_settings(SourceFile.of(name, text))
    reports = check_settings([file], Known(target_of=target_of, prefixes=lambda _: PREFIXES))
    return [f for r in reports for f in r.findings]


def rules(text: str, name: str = "run.sh", **target: object) -> list[str]:
    return [f.rule for f in check(text, name, **target)]


def test_ids_and_names_are_unique_and_say_their_file():
    made = setting_rules()
    assert len({r.id for r in made}) == len({r.name for r in made}) == len(SETTING_MODULES)
    for module in SETTING_MODULES:
        assert module.__name__.rsplit(".", 1)[-1].startswith(module.RULE.id.lower() + "_")
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", module.RULE.name)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.rule.id)
def test_examples_in_pages_hold(page):
    for heading in ("## What it finds", "## Why it matters", "## Bad", "## Good"):
        assert heading in page.markdown
    target = {"chat_template": "templates/chat.jinja"}
    bad = [f for f in check(page.bad, NAMES[page.language], **target) if f.rule == page.rule.id]
    assert max(f.severity for f in bad) is page.rule.severity
    assert max(f.confidence for f in bad) is page.rule.confidence
    assert page.rule.id not in rules(page.good, NAMES[page.language], **target)
    for finding in bad:
        assert f"`{finding.variable}" in finding.message
        assert len(finding.advice) > 20


def test_a_sound_start_has_no_finding():
    assert check(f"vllm serve acme/chat-8b {FULL}", block_size=16) == []
    assert check("python -m sglang.launch_server --model-path m --enable-cache-report") == []


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("--enable-prefix-caching", False),
        ("--no-enable-prefix-caching", True),
        ("--no-enable-prefix-caching --enable-prefix-caching", False),
        ("--enable-prefix-caching=False", True),
    ],
)
def test_the_last_flag_decides_on_caching(flags, found):
    assert ("PFX601" in rules(f"vllm serve m {flags} {FULL}")) is found


def test_sglang_has_its_own_flags():
    start = "python3 -m sglang.launch_server --model-path m"
    assert rules(start) == ["PFX602"]
    assert "PFX601" in rules(f"{start} --disable-radix-cache --enable-cache-report")
    assert rules(f"{start} --no-enable-prefix-caching --enable-cache-report") == []


def test_what_is_open_is_not_reported():
    assert rules("vllm serve m $EXTRA") == []
    assert rules('vllm serve m "$@"', hash_seed="7", kv_dtype="fp8") == []
    assert rules(f"vllm serve m {FULL} --api-key ''") == []
    assert rules(f"vllm serve m {FULL} --block-size $SIZE", block_size=32) == []


def test_a_weak_hash_is_worse_with_a_known_seed():
    start = "vllm serve m --enable-prompt-tokens-details --prefix-caching-hash-algo xxhash"
    (plain,) = check(start)
    (seeded,) = check(f"PYTHONHASHSEED=0 {start}")
    assert (plain.severity, seeded.severity) == (Severity.WARNING, Severity.ERROR)
    assert [f.severity for f in check(f"PYTHONHASHSEED=random {start}")] == [Severity.WARNING]


REPLICAS = """\
services:
  one:
    image: vllm/vllm-openai
    command: --model m --enable-prompt-tokens-details
    environment: {PYTHONHASHSEED: "0"}
  two:
    image: vllm/vllm-openai
    command: --model MODEL --enable-prompt-tokens-details
    environment: {PYTHONHASHSEED: "1"}
"""


def test_replicas_are_those_of_one_model():
    (finding,) = check(REPLICAS.replace("MODEL", "m"), "compose.yaml")
    assert (finding.rule, finding.variable, finding.location.line) == (
        "PFX605",
        "PYTHONHASHSEED",
        9,
    )
    assert check(REPLICAS.replace("MODEL", "other"), "compose.yaml") == []
    stages = f"FROM vllm/vllm-openai\nCMD vllm serve m {FULL} --block-size 16\n"
    assert rules(stages + stages.replace("16", "32"), "Dockerfile") == []


def test_replicas_in_two_files_are_only_a_remark():
    files = [
        parse_settings(SourceFile.of(f"{n}.sh", f"vllm serve m {FULL} --block-size {n}"))
        for n in (16, 32)
    ]
    (finding,) = [f for r in check_settings(files, Known()) for f in r.findings]
    assert (finding.severity, finding.confidence) == (Severity.INFO, Confidence.LOW)


def test_block_sizes():
    cpu = f"VLLM_CPU_KVCACHE_SPACE=4 vllm serve acme/chat-8b {FULL}"
    assert rules(f"{cpu} --block-size 48") == ["PFX606"]
    assert rules(f"{cpu} --block-size 64") == []
    large = check(f"vllm serve acme/chat-8b {FULL} --block-size 1024", block_size=1024)
    assert large == []  # no prompt was ever governed at that size
    swallowed = check(f"vllm serve acme/chat-8b {FULL} --block-size 1024", block_size=16)
    assert [f.rule for f in swallowed] == ["PFX606", "PFX609"]
    assert "support (700 tokens)" in swallowed[0].message
    assert "greeting" not in swallowed[0].message


@pytest.mark.parametrize(("limit", "found"), [("900", True), ("901", False), ("1k", False)])
def test_the_longest_request(limit, found):
    text = f"vllm serve acme/chat-8b {FULL} --max-model-len {limit}"
    assert ("PFX607" in rules(text, block_size=16)) is found


def test_numbers_as_vllm_reads_them():
    assert [number(n) for n in ("16k", "16K", "25.6k", "4096", "auto", "-1", None)] == [
        16_000,
        16_384,
        25_600,
        4096,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("method", "found"),
    [("eagle", True), ("deepseek_mtp", True), ("ngram", False), ("draft_model", False)],
)
def test_speculation(method, found):
    text = f'vllm serve m {FULL} --speculative-config \'{{"method": "{method}"}}\''
    assert ("PFX608" in rules(text)) is found
    dotted = f"vllm serve m {FULL} --speculative-config.method {method}"
    assert ("PFX608" in rules(dotted)) is found
    assert "PFX608" not in rules(f"{dotted} --speculative-config.disable_eagle_block_drop true")
    assert rules(f"vllm serve m {FULL} --speculative-config 'no json'") == []


@pytest.mark.parametrize(
    ("flags", "target", "variables"),
    [
        ("--kv-cache-dtype fp8", {}, ["--kv-cache-dtype"]),
        ("--kv-cache-dtype fp8_e4m3", {"kv_dtype": "fp8"}, []),
        ("", {"kv_dtype": "fp8"}, ["--kv-cache-dtype"]),
        ("--kv-cache-dtype bfloat16", {"dtype": "bfloat16"}, []),
        ("--chat-template /etc/other.jinja", {"chat_template": "t/c.jinja"}, ["--chat-template"]),
        ("--chat-template /etc/c.jinja", {"chat_template": "t/c.jinja"}, []),
        ("--revision abc", {"revision": "abc"}, []),
        ("--revision abc", {}, ["--revision"]),
        ("--block-size 32", {}, ["--block-size"]),
        ("--dtype half", {"dtype": "float16"}, []),
        ("--dtype half", {"dtype": "bfloat16"}, ["--dtype"]),
    ],
)
def test_drift_from_the_target(flags, target, variables):
    found = check(f"vllm serve acme/chat-8b {FULL} {flags}", **{"block_size": 16, **target})
    assert [f.variable for f in found] == variables
    assert {f.rule for f in found} <= {"PFX609"}


def test_an_algorithm_that_is_only_the_default_is_said_with_less_confidence():
    text = "vllm serve acme/chat-8b --enable-prompt-tokens-details"
    (finding,) = check(text, block_size=16)
    assert (finding.rule, finding.confidence) == ("PFX609", Confidence.MEDIUM)


def test_secrets_are_found_and_never_shown():
    text = (
        "export HF_TOKEN=hf_planted_1\n"
        f"vllm serve m {FULL} --api-key planted-2 --hf-token planted-3\n"
    )
    file = parse_settings(SourceFile.of("run.sh", text))
    (report,) = check_settings([file], Known())
    assert [f.rule for f in report.findings] == ["PFX610"] * 3
    shown = repr(report) + "".join(report.lines.values()) + repr(file)
    assert "planted" not in shown
    (passed,) = check(f'vllm serve m {FULL} --api-key "$KEY"')
    assert passed.severity is Severity.WARNING
    assert rules(f"vllm serve m {FULL} --api-key EMPTY") == []


@pytest.mark.parametrize(
    ("shown", "hidden"),
    [
        ("vllm serve m --hf-token planted --port 80", "vllm serve m --hf-token *** --port 80"),
        ("# HF_TOKEN=planted vllm", "# HF_TOKEN=*** vllm"),
        ('--c \'{"auth_token": "planted", "a": 1}\'', '--c \'{"auth_token": "***", "a": 1}\''),
        ('{\\"apiKey\\": \\"planted\\"}', '{\\"apiKey\\": \\"***\\"}'),
        ("password: 'planted planted' # x", "password: '***' # x"),
        ("redis://user:planted@host:6379/0", "redis://***@host:6379/0"),
        ('["--api-key", "planted", "--port"]', '["--api-key", "***", "--port"]'),
        ("api_key: ${KEY:-planted}", "api_key: ***"),
        ("# ENV A_SECRET planted", "# ENV A_SECRET ***"),
    ],
)
def test_what_a_line_shows_of_a_secret(shown, hidden):
    assert hide(shown) == hidden


@pytest.mark.parametrize(
    "line",
    [
        "--api-key $KEY --tokenizer x --enable-prompt-tokens-details",
        "api_key: ${KEY}",
        "VLLM_API_KEY=$(cat /run/x) vllm serve m --max-num-batched-tokens 8192",
        "`--api-key` puts a secret on the command line",
        "--ssl-keyfile /a --api-key-file /b --prefix-caching-hash-algo sha256",
        "the token budget is a key thing",
        "image: user@sha256:0123 http://host:8000/v1",
    ],
)
def test_what_is_no_secret_is_shown(line):
    assert hide(line) == line


def test_a_line_of_many_words_takes_no_time():
    assert hide("a-" * 200_000 + "token= x" + "://" * 100_000).count("***") == 1


def test_a_comment_and_json_in_an_excerpt_show_no_secret():
    text = (
        'vllm serve m --no-enable-prefix-caching --c \'{"password": "planted"}\' '
        "# was --api-key planted, redis://a:planted@b\n"
    )
    (report,) = check_settings([parse_settings(SourceFile.of("run.sh", text))], Known())
    assert report.findings
    assert "planted" not in repr(report) + "".join(report.lines.values())
