from __future__ import annotations

import functools
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sample import PROMPT_YAML

from prefixctl.config import Config, load_config
from prefixctl.core.ports import ServerFacts
from prefixctl.core.tenancy import UNSALTED, SaltedNamespace
from prefixctl.core.usage import CacheState, CacheUse
from prefixctl.engine.fake import FakeEngine
from prefixctl.errors import ExitCode
from prefixctl.ids import Salt
from prefixctl.prompts.load import load_prompt
from prefixctl.prompts.target import Target, load_target, measure
from prefixctl.registry.lease import SqliteLeases
from prefixctl.warm.run import (
    WarmItem,
    WarmOutcome,
    WarmReport,
    WarmStatus,
    warm,
)

FACTS = ServerFacts(models=("tiny-model",), block_size=16, hash_algorithm="sha256_cbor")
NAMESPACES = (UNSALTED,)


run = functools.partial(warm, served_name="tiny-model")


@pytest.fixture
def config(project: Path) -> Config:
    return load_config(project / "prefixctl.yaml")


@pytest.fixture
def target(config: Config) -> Target:
    return load_target(config, "tiny")


@pytest.fixture
def item(config: Config, target: Target) -> WarmItem:
    prompt = load_prompt(config.prompts_dir / "support")
    return WarmItem(
        prompt=prompt, version=1, measurement=measure(prompt, target, config.prefix_cache)
    )


def test_every_rank_of_every_server_in_every_namespace(item: WarmItem, target: Target) -> None:
    engines = [
        FakeEngine(target.tokenizer.token_ids, url=f"http://s{i}", ranks=2, facts=FACTS)
        for i in range(2)
    ]
    namespaces = [SaltedNamespace(label=n, salt=Salt(n)) for n in ("a", "b")]
    seen: list[tuple[int, int]] = []
    report = run(
        [item],
        engines,
        target,
        namespaces,
        on_outcome=lambda _, done, total: seen.append((done, total)),
    )
    assert report.exit_code is ExitCode.OK
    places = {(o.server, o.rank, o.namespace) for o in report.outcomes}
    assert len(report.outcomes) == len(places) == 8
    assert {o.status for o in report.outcomes} == {WarmStatus.RESIDENT}
    assert all(o.cached_tokens == o.expected_hit_tokens > 0 for o in report.outcomes)
    assert seen == [(i, 8) for i in range(1, 9)]
    assert {r[2] for e in engines for r in e.requests} == {0, 1}


def test_a_second_run_finds_it_resident_with_one_request(item: WarmItem, target: Target) -> None:
    engine = FakeEngine(target.tokenizer.token_ids, facts=FACTS)
    first = run([item], [engine], target, NAMESPACES)
    count = len(engine.requests)
    second = run([item], [engine], target, NAMESPACES)
    assert [first.outcomes[0].was_resident, second.outcomes[0].was_resident] == [False, True]
    assert len(engine.requests) == count + 1


def test_the_first_user_hits_all_full_blocks(item: WarmItem, target: Target) -> None:
    from prefixctl.prompts.target import example_request

    engine = FakeEngine(target.tokenizer.token_ids, facts=FACTS)
    run([item], [engine], target, NAMESPACES)
    use = engine.complete(example_request(item.prompt, target, 0)).use
    assert use.cached_tokens == item.measurement.alignment.expected_hit_tokens


def only(outcomes: tuple[WarmOutcome, ...]) -> WarmOutcome:
    assert len(outcomes) == 1
    return outcomes[0]


def test_a_cache_that_is_too_small_fails_loudly(item: WarmItem, target: Target) -> None:
    engine = FakeEngine(target.tokenizer.token_ids, capacity_blocks=5, facts=FACTS)
    report = run([item], [engine], target, NAMESPACES)
    assert only(report.outcomes).status is WarmStatus.NOT_RESIDENT
    assert "reused" in only(report.outcomes).message
    assert report.exit_code is ExitCode.FINDINGS


def test_a_server_that_does_not_report_is_not_called_warm(item: WarmItem, target: Target) -> None:
    engine = FakeEngine(target.tokenizer.token_ids, reports_cached=False, facts=FACTS)
    report = run([item], [engine], target, NAMESPACES)
    assert only(report.outcomes).status is WarmStatus.UNREPORTED
    assert "--enable-prompt-tokens-details" in only(report.outcomes).message
    assert report.exit_code is ExitCode.FINDINGS


def test_another_tokenizer_behind_the_address_is_drift(item: WarmItem, target: Target) -> None:
    engine = FakeEngine(lambda r: [*target.tokenizer.token_ids(r)[:-1], 0], facts=FACTS)
    report = run([item], [engine], target, NAMESPACES)
    assert only(report.outcomes).status is WarmStatus.DRIFT
    assert not engine.requests
    assert report.exit_code is ExitCode.DRIFT


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": ("other",)}, "serves other, not 'tiny-model'"),
        ({"block_size": 32}, "block size is 32, target 'tiny' has 16"),
        ({"hash_algorithm": "sha256"}, "block hash is sha256"),
    ],
)
def test_a_server_that_is_not_what_the_target_says_is_drift(
    item: WarmItem, target: Target, change: dict, words: str
) -> None:
    engine = FakeEngine(target.tokenizer.token_ids, ranks=2, facts=replace(FACTS, **change))
    report = run([item], [engine], target, NAMESPACES)
    assert {o.status for o in report.outcomes} == {WarmStatus.DRIFT}
    assert len(report.outcomes) == 2
    assert words in report.outcomes[0].message
    assert not engine.requests
    assert report.exit_code is ExitCode.DRIFT


def test_a_prompt_that_drifted_does_not_stop_the_others(item: WarmItem, target: Target) -> None:
    engine = FakeEngine(target.tokenizer.token_ids, facts=FACTS)
    report = run([replace(item, drift="bump it"), item], [engine], target, NAMESPACES)
    assert [o.status for o in report.outcomes] == [WarmStatus.DRIFT, WarmStatus.RESIDENT]
    assert report.exit_code is ExitCode.DRIFT


def test_records_do_not_show_salts() -> None:
    assert "secret" not in repr(SaltedNamespace(label="a", salt=Salt("secret")))


def test_a_server_that_is_down_fails_its_own_entries_only(item: WarmItem, target: Target) -> None:
    down = FakeEngine(target.tokenizer.token_ids, url="http://down", is_up=False, facts=FACTS)
    up = FakeEngine(target.tokenizer.token_ids, url="http://up", facts=FACTS)
    report = run([item], [down, up], target, NAMESPACES)
    assert [o.status for o in report.outcomes] == [WarmStatus.FAILED, WarmStatus.RESIDENT]
    assert report.exit_code is ExitCode.UNREACHABLE


def test_a_short_prompt_is_said_to_be_too_short(
    config: Config, target: Target, project: Path
) -> None:
    folder = project / "templates" / "support"
    (folder / "prompt.yaml").write_text(
        "sections:\n  - {kind: user, file: user.md.j2}\n"
        + PROMPT_YAML[PROMPT_YAML.index("parameters:") :]
    )
    prompt = load_prompt(folder)
    short = WarmItem(
        prompt=prompt, version=1, measurement=measure(prompt, target, config.prefix_cache)
    )
    engine = FakeEngine(target.tokenizer.token_ids, facts=FACTS)
    report = run([short], [engine], target, NAMESPACES)
    assert only(report.outcomes).status is WarmStatus.TOO_SHORT
    assert "fewer than one cache unit" in only(report.outcomes).message
    assert report.exit_code is ExitCode.OK


@pytest.mark.parametrize(
    ("cached", "expected", "state"),
    [
        (64, 64, CacheState.FULL),
        (80, 64, CacheState.FULL),
        (48, 64, CacheState.PARTIAL),
        (0, 64, CacheState.MISS),
        (0, 0, CacheState.TOO_SHORT),
        (None, 64, CacheState.UNREPORTED),
        (None, 0, CacheState.TOO_SHORT),
    ],
)
def test_cache_states(cached: int | None, expected: int, state: CacheState) -> None:
    assert CacheUse(prompt_tokens=100, cached_tokens=cached).state(expected) is state


def test_section_types_that_are_not_governed_end_the_prefix(config: Config, target: Target) -> None:
    prompt = load_prompt(config.prompts_dir / "support")
    rules = config.prefix_cache
    whole = measure(prompt, target, rules).alignment.shared_tokens
    fewer = rules.model_copy(update={"blocks": ("system_prompt", "tools")})
    cut = measure(prompt, target, fewer).alignment.shared_tokens
    least = rules.model_copy(update={"blocks": ("system_prompt",)})
    shortest = measure(prompt, target, least).alignment.shared_tokens
    assert shortest < cut < whole


def test_of_two_warm_ups_at_once_one_fills_each_prefix(
    item: WarmItem, target: Target, tmp_path: Path
) -> None:
    engine = FakeEngine(target.tokenizer.token_ids, ranks=2, facts=FACTS)
    reports: list[WarmReport] = []

    def work() -> None:
        lease = SqliteLeases(tmp_path / "leases")
        reports.append(run([item], [engine], target, NAMESPACES, lease=lease))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [o.was_resident for r in reports for o in r.outcomes]
    assert sorted(found) == [False, False, True, True]
    assert len(engine.requests) == 6
