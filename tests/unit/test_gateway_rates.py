"""Rates: the bucket, the table that processes share, and the labels that stay few."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixctl.config import RateConfig
from prefixctl.errors import UnreachableError
from prefixctl.gateway.ledger import PROBES, SLOTS, Ledger, _number
from prefixctl.gateway.rates import MINUTE_SECONDS, give_back, retry_after, take
from prefixctl.gateway.record import ANOTHER, TopLabels

TWO = RateConfig(requests_per_minute=2)
TOKENS = RateConfig(prefill_tokens_per_minute=100)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Ledger:
    return Ledger(tmp_path / "rates", clock=clock)


@given(
    per_minute=st.integers(1, 10_000),
    steps=st.lists(st.tuples(st.floats(0, 90), st.integers(1, 20_000)), max_size=60),
)
def test_no_more_is_given_than_a_minutes_worth_and_what_came_back(
    per_minute: int, steps: list[tuple[float, int]]
) -> None:
    now, full_at, given_units, largest = 0.0, 0.0, 0, 0
    for pause, units in steps:
        now += pause
        taken = take(full_at, now, units=units, per_minute=per_minute)
        full_at = taken.full_at
        if not taken.wait_seconds:
            given_units += units
            largest = max(largest, units)
        else:
            later = take(full_at, now + taken.wait_seconds, units=units, per_minute=per_minute)
            assert later.wait_seconds == pytest.approx(0, abs=1e-6)
        bound = per_minute * (1 + now / MINUTE_SECONDS) + max(largest - per_minute, 0)
        assert given_units <= bound * (1 + 1e-9) + 1e-6


def test_what_is_given_back_can_be_taken_again() -> None:
    full_at = take(0, 0, units=60, per_minute=60).full_at
    assert take(full_at, 0, units=1, per_minute=60).wait_seconds == pytest.approx(1)
    full_at = give_back(full_at, units=2, per_minute=60)
    assert take(full_at, 0, units=2, per_minute=60).wait_seconds == 0


def test_retry_after_is_whole_and_never_zero() -> None:
    assert [retry_after(s) for s in (0.01, 1.0, 1.2)] == [1, 1, 2]


def test_requests_come_back_with_time(ledger: Ledger, clock: Clock) -> None:
    assert [ledger.take_request("a", TWO) for _ in range(3)] == [0, 0, pytest.approx(30)]
    assert ledger.take_request("b", TWO) == 0
    clock.now += 30
    assert [ledger.take_request("a", TWO) > 0 for _ in range(2)] == [False, True]


def test_a_request_larger_than_the_bucket_is_served_when_it_is_full(
    ledger: Ledger, clock: Clock
) -> None:
    assert ledger.take_tokens("a", 250, TOKENS) == 0
    assert ledger.take_tokens("a", 1, TOKENS) == pytest.approx(90.6)
    ledger.give_back_tokens("a", 200, TOKENS)
    assert ledger.take_tokens("a", 50, TOKENS) == 0
    ledger.give_back_tokens("a", -100, TOKENS)
    assert ledger.take_tokens("a", 1, TOKENS) == pytest.approx(60.6)


def test_without_a_limit_nothing_is_counted(ledger: Ledger) -> None:
    assert all(ledger.take_request("a", RateConfig()) == 0 for _ in range(100))


def test_two_openings_of_the_file_are_one_table(tmp_path: Path, clock: Clock) -> None:
    first, second = (Ledger(tmp_path / "rates", clock=clock) for _ in range(2))
    assert first.take_request("a", TWO) == 0
    assert second.take_request("a", TWO) == 0
    assert first.take_request("a", TWO) > 0
    assert (tmp_path / "rates").stat().st_mode & 0o777 == 0o600


def test_a_file_from_before_a_restart_begins_anew(tmp_path: Path, clock: Clock) -> None:
    ledger = Ledger(tmp_path / "rates", clock=clock)
    ledger.take_request("a", RateConfig(requests_per_minute=1))
    ledger.close()
    data = bytearray((tmp_path / "rates").read_bytes())
    data[20] ^= 1
    (tmp_path / "rates").write_bytes(data)
    ledger = Ledger(tmp_path / "rates", clock=clock)
    assert ledger.take_request("a", RateConfig(requests_per_minute=1)) == 0


def test_many_tenants_have_buckets_of_their_own(ledger: Ledger, clock: Clock) -> None:
    one = RateConfig(requests_per_minute=1)
    names = [f"tenant-{n}" for n in range(5_000)]
    assert all(ledger.take_request(name, one) == 0 for name in names)
    assert all(ledger.take_request(name, one) > 0 for name in names)
    clock.now += 61
    assert all(ledger.take_request(name, one) == 0 for name in names)


def test_a_file_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "rates").mkdir()
    with pytest.raises(UnreachableError, match="table of rates"):
        Ledger(tmp_path / "rates")


@pytest.mark.parametrize("left", [0, 10, 64, 5_000])
def test_a_file_that_is_cut_short_begins_anew_and_kills_nobody(
    left: int, tmp_path: Path, clock: Clock
) -> None:
    ledger = Ledger(tmp_path / "rates", clock=clock)
    names = [f"tenant-{n}" for n in range(50)]
    assert all(ledger.take_request(name, TWO) == 0 for name in names)
    os.truncate(tmp_path / "rates", left)
    assert all(ledger.take_request(name, TWO) == 0 for name in names)
    os.truncate(tmp_path / "rates", left)
    later = Ledger(tmp_path / "rates", clock=clock)
    assert [later.take_request("a", TWO), ledger.take_request("a", TWO)] == [0, 0]
    assert later.take_request("a", TWO) > 0


def test_all_go_over_to_the_next_file_where_theirs_was_removed(
    tmp_path: Path, clock: Clock
) -> None:
    first, second = (Ledger(tmp_path / "rates", clock=clock) for _ in range(2))
    assert [first.take_request("a", TWO) for _ in range(2)] == [0, 0]
    (tmp_path / "rates").unlink()
    clock.now += 1
    assert [first.take_request("a", TWO), second.take_request("a", TWO)] == [0, 0]
    assert Ledger(tmp_path / "rates", clock=clock).take_request("a", TWO) > 0


def test_a_file_that_was_moved_away_is_left_as_well(tmp_path: Path, clock: Clock) -> None:
    first = Ledger(tmp_path / "rates", clock=clock)
    assert [first.take_request("a", TWO) for _ in range(2)] == [0, 0]
    (tmp_path / "rates").rename(tmp_path / "old")
    clock.now += 1
    second = Ledger(tmp_path / "rates", clock=clock)
    assert [first.take_request("a", TWO), second.take_request("a", TWO)] == [0, 0]
    assert first.take_request("a", TWO) > 0


def test_a_table_that_cannot_be_written_is_a_clear_error(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "rates", clock=clock)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(UnreachableError, match="No space left"):
        ledger.take_request("a", TWO)
    monkeypatch.undo()
    assert ledger.take_request("a", TWO) == 0


def test_the_slots_of_a_tenant_go_round_the_end_of_the_table(ledger: Ledger) -> None:
    one = RateConfig(requests_per_minute=1)
    names = [n for n in map(str, range(60_000)) if _number(n) % SLOTS >= SLOTS - PROBES // 4]
    assert len(names) > PROBES // 4
    assert all(ledger.take_request(name, one) == 0 for name in names)
    assert all(ledger.take_request(name, one) > 0 for name in names)


def _take(path: Path, count: int) -> None:
    ledger = Ledger(path)
    taken = sum(
        not ledger.take_request("a", RateConfig(requests_per_minute=500)) for _ in range(count)
    )
    os._exit(min(taken // 10, 255))


@pytest.mark.slow
def test_processes_share_one_limit(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_take, args=(tmp_path / "rates", 400)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    taken = 10 * sum(worker.exitcode or 0 for worker in workers)
    assert 470 <= taken <= 700  # 500, what came back meanwhile, and rounding


def _hold(path: Path, held: Event) -> None:
    ledger = Ledger(path)
    with ledger._locked():
        held.set()
        time.sleep(60)


@pytest.mark.slow
def test_a_process_that_dies_with_the_lock_lets_it_go(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "rates")
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    worker = context.Process(target=_hold, args=(tmp_path / "rates", held))
    worker.start()
    assert held.wait(30)
    os.kill(worker.pid or 0, signal.SIGKILL)
    assert ledger.take_request("a", TWO) == 0
    worker.join()


def test_labels_stay_few_and_go_to_the_busy() -> None:
    labels = TopLabels(2)
    assert [labels.label(n) for n in ("a", "b", "c")] == ["a", "b", ANOTHER]
    for _ in range(10):
        labels.label("busy")
    assert labels.label("busy") == "busy"
    given = {labels.label(f"n{i % 50}") for i in range(5_000)}
    assert len(given | {"a", "b", "busy"}) <= 5
    assert TopLabels(0).label("a") == ANOTHER
