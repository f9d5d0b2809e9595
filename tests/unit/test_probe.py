from __future__ import annotations

import random
from pathlib import Path

import pytest

from prefixctl.audit.probe import Isolation, ProbeReport, ProbeTenant, probe
from prefixctl.core.tenancy import Namespace, NamespaceKind, Secret, derive_salt, pseudonym
from prefixctl.engine.fake import FakeEngine
from prefixctl.errors import ExitCode
from prefixctl.ids import Salt
from prefixctl.prompts.tokenize import load_tokenizer

SALTED = (
    ProbeTenant(label="a", salt=Salt("salt-of-a")),
    ProbeTenant(label="b", salt=Salt("salt-of-b")),
)
UNSALTED = (ProbeTenant(label="a", salt=None), ProbeTenant(label="b", salt=None))
PREAMBLE = [7] * 64


@pytest.fixture
def tokens(tokenizer_dir: Path):
    return load_tokenizer(tokenizer_dir).token_ids


def run(engine: FakeEngine, tenants: tuple[ProbeTenant, ProbeTenant]) -> ProbeReport:
    return probe(engine, tenants, rounds=2, words=100, rng=random.Random(1))


def test_salts_that_are_honoured_isolate(tokens) -> None:
    report = run(FakeEngine(tokens, ranks=2), SALTED)
    assert (report.isolation, report.exit_code) == (Isolation.ISOLATED, ExitCode.OK)
    assert len(report.rounds) == 8
    assert {(r.rank, r.writer) for r in report.rounds} == {(0, "a"), (0, "b"), (1, "a"), (1, "b")}


def test_no_salts_is_a_leak_and_its_cause_is_named(tokens) -> None:
    report = run(FakeEngine(tokens), UNSALTED)
    assert (report.isolation, report.exit_code) == (Isolation.LEAK, ExitCode.FINDINGS)
    assert "carry no salt" in report.explain()


def test_salts_that_are_ignored_are_a_leak(tokens) -> None:
    report = run(FakeEngine(tokens, honours_salts=False), SALTED)
    assert report.isolation is Isolation.LEAK
    assert "ignores the salts" in report.explain()


def test_the_templates_own_words_are_no_leak(tokens) -> None:
    engine = FakeEngine(lambda r: PREAMBLE + tokens(r))
    report = run(engine, SALTED)
    assert report.isolation is Isolation.ISOLATED
    assert all(r.reader_floor == r.other_cached == 64 for r in report.rounds)
    assert run(engine, UNSALTED).isolation is Isolation.LEAK


def test_a_cache_that_never_hits_proves_nothing(tokens) -> None:
    report = run(FakeEngine(tokens, capacity_blocks=0), SALTED)
    assert (report.isolation, report.exit_code) == (
        Isolation.INCONCLUSIVE,
        ExitCode.UNDERPOWERED,
    )
    assert "proves nothing" in report.explain()


def test_not_reported_is_not_isolated(tokens) -> None:
    report = run(FakeEngine(tokens, reports_cached=False), SALTED)
    assert report.isolation is Isolation.INCONCLUSIVE
    assert "--enable-prompt-tokens-details" in report.explain()


SECRET = Secret(b"0123456789abcdef")


def salt(kind: NamespaceKind = NamespaceKind.TENANT, name: str = "a", **change: object) -> Salt:
    options = {"model": "m", "epoch": 0} | change
    return derive_salt(SECRET, Namespace(kind=kind, name=name), **options)  # type: ignore[arg-type]


def test_salts_depend_on_every_part_and_fit_the_engine() -> None:
    salts = {
        salt(),
        salt(NamespaceKind.GROUP),
        salt(name="b"),
        salt(model="m2"),
        salt(epoch=1),
        derive_salt(
            Secret(b"another-secret-of-16"),
            Namespace(kind=NamespaceKind.TENANT, name="a"),
            model="m",
            epoch=0,
        ),
    }
    assert len(salts) == 6
    assert all(len(s) <= 128 and not set(s) & set("@/\\\0") for s in salts)
    assert salt() == salt()


def test_parts_do_not_run_into_each_other() -> None:
    assert salt(name="ab", model="c") != salt(name="a", model="bc")


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        derive_salt(
            Secret(b"short"), Namespace(kind=NamespaceKind.TENANT, name="a"), model="m", epoch=0
        )


def test_secrets_and_pseudonyms_reveal_nothing() -> None:
    assert "0123" not in f"{SECRET!r} {SECRET} {[SECRET]}"
    name = pseudonym(SECRET, "acme")
    assert len(name) == 12
    assert name != pseudonym(SECRET, "acme2")
