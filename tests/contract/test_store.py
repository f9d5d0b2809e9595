"""What every store of published versions must do. A new store joins in `STORES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixctl.core.prompt import digest_of
from prefixctl.errors import RegistryError
from prefixctl.ids import PromptName
from prefixctl.registry.store.base import Action, Alias, Release, Stamp, Store, VersionRef
from prefixctl.registry.store.sqlite import SqliteStore

STORES: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: SqliteStore(folder / "registry.db", create=True),
}
START = datetime(2026, 1, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
NAME = PromptName("support")


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    made.close()


def release(version: int, *, name: str = "support", text: bytes | None = None) -> Release:
    body = b"text of %d\r\n" % version if text is None else text
    return Release(
        name=PromptName(name),
        version=version,
        id=digest_of(b"%d" % version + body),
        record=b"record of %d" % version,
        files={"prompt.yaml": b"same for all", "system.md": body},
    )


def stamp(day: float = 0) -> Stamp:
    return Stamp(at=START + timedelta(days=day), by="Ann")


def test_a_new_store_knows_nothing(store: Store) -> None:
    assert store.names() == []
    assert store.state(NAME).versions == ()
    with pytest.raises(RegistryError, match="no live version"):
        store.load(NAME, Alias.LIVE)


def test_publish_makes_a_version_live_and_keeps_the_one_before_as_previous(store: Store) -> None:
    for version in (1, 2, 3):
        moved = store.publish(release(version), stamp(version))
        assert moved.after.live == version
    assert (moved.before.live, moved.after.previous) == (2, 2)
    assert store.load(NAME, Alias.LIVE) == release(3)
    assert store.load(NAME, Alias.PREVIOUS) == release(2)
    assert store.load(NAME, 1) == release(1)
    assert store.names() == ["support"]


def test_bytes_come_back_as_they_were(store: Store) -> None:
    odd = b"\xef\xbb\xbfA\r\nB\rC  \n\x00\xff\t"
    store.publish(release(1, text=odd), stamp())
    assert store.load(NAME, 1).files["system.md"] == odd


def test_publishing_the_live_version_again_changes_nothing(store: Store) -> None:
    store.publish(release(1), stamp())
    before = store.state(NAME)
    moved = store.publish(release(1), stamp(1))
    assert moved.before == moved.after
    assert store.state(NAME) == before


def test_a_version_never_changes(store: Store) -> None:
    store.publish(release(1), stamp())
    before = store.state(NAME)
    with pytest.raises(RegistryError, match="other content"):
        store.publish(release(1, text=b"forged"), stamp())
    assert store.state(NAME) == before
    assert store.load(NAME, 1) == release(1)


def test_a_second_rollback_goes_one_further_back(store: Store) -> None:
    for version in (1, 2, 3):
        store.publish(release(version), stamp())
    assert store.rollback(NAME, None, stamp()).after.live == 2
    moved = store.rollback(NAME, None, stamp())
    assert (moved.after.live, moved.after.previous) == (1, None)
    with pytest.raises(RegistryError, match="no earlier version"):
        store.rollback(NAME, None, stamp())
    assert store.load(NAME, Alias.LIVE) == release(1)
    store.publish(release(3), stamp())
    assert store.state(NAME).serving.stack == (1, 3)


def test_rollback_to_a_given_version(store: Store) -> None:
    for version in (1, 2, 3):
        store.publish(release(version), stamp())
    assert store.rollback(NAME, 1, stamp()).after.stack == (1,)
    assert store.rollback(NAME, 3, stamp()).after.stack == (1, 3)
    with pytest.raises(RegistryError, match="no version 9") as caught:
        store.rollback(NAME, 9, stamp())
    assert caught.value.hint == "kept: 1, 2, 3"


def test_moves_are_recorded_in_order(store: Store) -> None:
    store.publish(release(1), stamp(0))
    store.publish(release(2), stamp(1))
    store.rollback(NAME, None, stamp(2))
    moves = store.state(NAME).moves
    assert [(m.action, m.before, m.after) for m in moves] == [
        (Action.PUBLISH, None, 1),
        (Action.PUBLISH, 1, 2),
        (Action.ROLLBACK, 2, 1),
    ]
    assert [m.at for m in moves] == [stamp(d).at for d in (0, 1, 2)]
    assert {m.by for m in moves} == {"Ann"}


def test_collect_waits_for_the_retention_after_retirement(store: Store) -> None:
    for version in (1, 2, 3):
        store.publish(release(version), stamp(version))
    assert store.collect(stamp(9.9).at, WEEK).versions == ()
    plan = store.collect(stamp(10).at, WEEK, dry_run=True)
    assert plan.versions == (VersionRef(name=NAME, version=1),)
    assert store.load(NAME, 1) == release(1)
    assert store.collect(stamp(10).at, WEEK) == plan
    assert (plan.blobs, plan.freed_bytes) == (1, len(b"text of 1\r\n"))
    with pytest.raises(RegistryError):
        store.load(NAME, 1)


def test_collect_never_takes_live_or_previous(store: Store) -> None:
    store.publish(release(1), stamp(0))
    store.publish(release(2), stamp(1))
    assert store.collect(stamp(999).at, timedelta(0)).versions == ()
    assert store.load(NAME, Alias.PREVIOUS) == release(1)


def test_what_comes_back_is_not_retired(store: Store) -> None:
    for version in (1, 2, 3):
        store.publish(release(version), stamp(version))
    store.rollback(NAME, 1, stamp(5))
    retired = {v.version: v.retired_at for v in store.state(NAME).versions}
    assert retired == {1: None, 2: stamp(5).at, 3: stamp(5).at}


def test_bytes_that_another_version_needs_stay(store: Store) -> None:
    for version in (1, 2, 3):
        store.publish(release(version, text=b"one text"), stamp())
    store.publish(release(1, name="other", text=b"one text"), stamp())
    found = store.collect(stamp(30).at, WEEK)
    assert (found.versions, found.blobs) == ((VersionRef(name=NAME, version=1),), 0)
    assert store.load(PromptName("other"), 1).files["system.md"] == b"one text"


def test_a_clock_behind_the_retirement_collects_nothing(store: Store) -> None:
    for version in (1, 2, 3):
        store.publish(release(version), stamp(100))
    assert store.collect(stamp(-400).at, WEEK).versions == ()


@pytest.mark.parametrize("kind", sorted(STORES))
def test_writers_cannot_interleave_and_readers_see_one_version(kind: str, tmp_path: Path) -> None:
    def work(worker: int) -> None:
        with closing(STORES[kind](tmp_path)) as own:
            for i in range(12):
                own.publish(release(1 + (worker + i) % 3), stamp(i))
                seen = own.load(NAME, Alias.LIVE)
                assert seen == release(seen.version)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    with closing(STORES[kind](tmp_path)) as store:
        state = store.state(NAME)
    assert all(a.after == b.before for a, b in pairwise(state.moves))
    assert state.moves[-1].after == state.serving.live
    assert [m.after for m in state.moves] == list(state.serving.stack)


STEPS = st.lists(
    st.tuples(st.sampled_from(["publish", "rollback", "to", "collect"]), st.integers(1, 4)),
    max_size=12,
)


@pytest.mark.parametrize("kind", sorted(STORES))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_live_and_previous_can_always_be_read(
    kind: str, steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = STORES[kind](tmp_path_factory.mktemp("store"))
    try:
        for day, (what, version) in enumerate(steps):
            _apply(store, what, version, day)
            state = store.state(NAME)
            kept = {v.version for v in state.versions}
            assert set(state.serving.stack) <= kept
            standing = {state.serving.live, state.serving.previous} - {None}
            assert {v.version for v in state.versions if v.retired_at is None} == standing
            for number in kept:
                assert store.load(NAME, number) == release(number)
    finally:
        store.close()


def _apply(store: Store, what: str, version: int, day: int) -> None:
    try:
        if what == "publish":
            store.publish(release(version), stamp(day))
        elif what == "collect":
            store.collect(stamp(day).at, timedelta(days=2))
        else:
            store.rollback(NAME, version if what == "to" else None, stamp(day))
    except RegistryError:
        assert what in {"rollback", "to"}
