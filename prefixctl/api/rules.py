"""Generate alert and recording rules, check that they are current, and test them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixctl.config import Config
from prefixctl.errors import InputError
from prefixctl.metrics.emit import rules_name, rules_text, tests_name, tests_text
from prefixctl.metrics.files import GeneratedFile, require_current, write_generated
from prefixctl.metrics.model import Runbooks
from prefixctl.metrics.parameters import Parameters, apply_settings
from prefixctl.metrics.profiles import build_rules
from prefixctl.metrics.selector import CATALOGUE_PREFIX, Source, make_source
from prefixctl.metrics.unittests import unit_tests
from prefixctl.metrics.verify import PromtoolResult, verify_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedRules:
    """What was generated."""

    profile: str
    files: tuple[GeneratedFile, ...]
    recording_rules: int
    alerts: tuple[str, ...]
    unit_tests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What to generate; see `generate_rules`."""

    profile: str
    metric_prefix: str
    selector: str
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rendered:
    """File names and texts, before anything is written."""

    texts: dict[str, str]
    recording_rules: int
    alerts: tuple[str, ...]
    unit_tests: int


def generate_rules(
    config: Config,
    *,
    profile: str,
    out_dir: Path,
    metric_prefix: str = CATALOGUE_PREFIX,
    selector: str | None = None,
    settings: Sequence[str] = (),
) -> GeneratedRules:
    """Write the rule file of a profile and its unit tests.

    Args:
        config: ``metrics`` gives the selector and the address of the runbook pages.
        profile: Name of the profile.
        out_dir: Folder of the files; made if missing. Each file is replaced at once or not at all.
        metric_prefix: What the stored names of the engine begin with.
        selector: Label matchers for every series; those of the configuration if None.
        settings: Changed parameters, as ``NAME=VALUE``.

    Raises:
        UsageError: For an unknown profile or parameter.
        InputError: For a prefix or matchers that cannot be used, or a folder that cannot be
            written.
    """
    request = _request(config, profile, metric_prefix, selector, settings)
    rendered = _render(config, request)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        files = tuple(
            write_generated(out_dir / name, text) for name, text in rendered.texts.items()
        )
    except OSError as exc:
        raise InputError(f"cannot be written: {exc.strerror}", path=str(out_dir)) from exc
    return _summary(request, rendered, files)


def check_generated(
    config: Config,
    *,
    profile: str,
    out_dir: Path,
    metric_prefix: str = CATALOGUE_PREFIX,
    selector: str | None = None,
    settings: Sequence[str] = (),
) -> GeneratedRules:
    """Compare the files on disk with what would be generated; writes nothing.

    Raises:
        DriftError: If a file is missing or differs, with the first line that does.
        UsageError, InputError: As `generate_rules`.
    """
    request = _request(config, profile, metric_prefix, selector, settings)
    rendered = _render(config, request)
    for name, text in rendered.texts.items():
        require_current(out_dir / name, text)
    files = tuple(GeneratedFile(path=out_dir / name, changed=False) for name in rendered.texts)
    return _summary(request, rendered, files)


def test_rules(folder: Path) -> tuple[PromtoolResult, ...]:
    """Let promtool check and test the rules in a folder. Errors as in `verify_folder`."""
    return verify_folder(folder)


def _request(
    config: Config,
    profile: str,
    metric_prefix: str,
    selector: str | None,
    settings: Sequence[str],
) -> _Request:
    return _Request(
        profile=profile,
        metric_prefix=metric_prefix,
        selector=config.metrics.selector if selector is None else selector,
        settings=(*(f"{k}={v}" for k, v in config.metrics.set.items()), *settings),
    )


def _render(config: Config, request: _Request) -> _Rendered:
    source = make_source(metric_prefix=request.metric_prefix, selector=request.selector)
    parameters = apply_settings(Parameters(), request.settings)
    runbooks = Runbooks(base=config.metrics.runbook_url)
    rules = build_rules(request.profile, source, parameters=parameters, runbooks=runbooks)
    scenarios = unit_tests(rules, source, parameters)
    header = _header(request, source)
    return _Rendered(
        texts={
            rules_name(rules.profile): rules_text(rules, header=header),
            tests_name(rules.profile): tests_text(rules, scenarios, header=header),
        },
        recording_rules=len(rules.recording_rules),
        alerts=tuple(rule.alert for rule in rules.alerts),
        unit_tests=len(scenarios),
    )


def _header(request: _Request, source: Source) -> str:
    words = ["prefixctl", "rules", "generate", "--profile", request.profile]
    if request.metric_prefix != CATALOGUE_PREFIX:
        words += ["--metric-prefix", request.metric_prefix]
    if request.selector:
        words += ["--selector", request.selector]
    for setting in request.settings:
        words += ["--set", setting]
    engine = f"{source.catalogue.engine} {source.catalogue.version}"
    return f"Generated for {engine}; do not edit. Change the command and run it again:\n" + (
        shlex.join(words)
    )


def _summary(
    request: _Request, rendered: _Rendered, files: Sequence[GeneratedFile]
) -> GeneratedRules:
    return GeneratedRules(
        profile=request.profile,
        files=tuple(files),
        recording_rules=rendered.recording_rules,
        alerts=rendered.alerts,
        unit_tests=rendered.unit_tests,
    )
