"""Whose blocks go first: other models, expired ones, several bounds, a clock that is set."""

from __future__ import annotations

import os
import shutil
import threading
import time
from functools import partial

import pytest
from tiering import (
    OURS,
    ROOM,
    Clock,
    disk_bytes,
    file_of,
    key_of,
    load,
    open_store,
    put,
    there,
    used_at,
)

from prefixctl.core.policy.tier import Rules
from prefixctl.tiers.material import Material
from prefixctl.tiers.others import Others, Standing, standings
from prefixctl.tiers.steady import SteadyTime, boot_seconds
from prefixctl.tiers.view import view_tier

FIRST, SECOND = Material({"model": "first"}), Material({"model": "second"})
DAY = 86_400.0


def evictions(store):
    return {reason: n for reason, n in store.snapshot()["evictions"].items() if n}


@pytest.mark.parametrize("ttl", [DAY, None])
def test_a_model_that_was_rolled_back_to_stores_again(tmp_path, ttl):
    rules = Rules(ttl_seconds=ttl)
    first = open_store(tmp_path, material=FIRST, rules=rules)
    put(first, 0)
    first.close()
    second = open_store(tmp_path, material=SECOND, rules=rules)
    for chain in range(20):
        put(second, 0, chain)
    second.close()
    first = open_store(tmp_path, material=FIRST, rules=rules)
    assert all(put(first, 0, 100 + chain) for chain in range(20))
    assert all(load(first, 0, 112 + chain) == "hit" for chain in range(8))
    assert disk_bytes(tmp_path) <= first.max_bytes
    assert evictions(first)["old_model"] == 8


def test_what_was_precomputed_for_the_next_model_outlives_older_blocks_of_this_one(tmp_path):
    clock = Clock()
    first = open_store(tmp_path, material=FIRST, clock=clock)
    for chain in range(6):
        put(first, 0, chain)
        used_at(first, 0, chain, clock.now, material=FIRST)
    clock.now += 100
    second = open_store(tmp_path, material=SECOND, clock=clock)
    for chain in range(2):
        put(second, 0, chain)
        used_at(second, 0, chain, clock.now, material=SECOND)
    second.close()
    clock.now += 100
    for chain in range(6, 12):
        assert put(first, 0, chain)
        used_at(first, 0, chain, clock.now, material=FIRST)
    assert there(second, [(0, 0), (0, 1)], material=SECOND) == [True, True]
    for chain in range(12, 14):
        assert put(first, 0, chain)
    assert there(second, [(0, 0), (0, 1)], material=SECOND) == [False, False]
    assert evictions(first) == {"space": 6, "old_model": 2}


def test_a_younger_model_gives_way_once_its_server_has_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("prefixctl.tiers.lookout.LOOK_AGAIN_SECONDS", 0.0)
    first = open_store(tmp_path, material=FIRST)
    second = open_store(tmp_path, material=SECOND)
    for chain in range(8):
        put(second, 0, chain)
    assert not put(first, 0)
    assert first.snapshot()["refused"]["no_room"] == 1
    second.close()
    assert put(first, 0)
    again = open_store(tmp_path, material=SECOND)
    assert put(first, 1)
    assert sum(there(again, [(0, chain) for chain in range(8)], material=SECOND)) == 7
    assert evictions(first) == {"old_model": 1, "space": 1}


def test_standings_follow_age_and_who_is_served():
    found = standings(["a", "b", "c", "d"], "b", {"a", "b", "d"})
    assert found == {"a": Standing.OLDER, "c": Standing.LEFT, "d": Standing.YOUNGER}
    assert standings(["a"], "new", ()) == {"a": Standing.OLDER}


def test_others_go_by_the_age_of_their_model_then_by_use(monkeypatch):
    monkeypatch.setattr("prefixctl.tiers.others.MOST", 3)
    models = {"a": Standing.OLDER, "b": Standing.OLDER, "c": Standing.YOUNGER, "d": Standing.LEFT}
    files = [
        *((name, (f"{name}{used}", 1, float(used))) for name in "ba" for used in range(9)),
        *(("c", (f"c{used}", 1, float(used))) for used in (5, 3)),
        ("d", ("d4", 1, 4.0)),
    ]
    others = Others(models, files)
    assert [others.older() for _ in range(4)] == ["a0", "a1", "a2", None]
    assert others.run_dry, "there were more than are remembered"
    assert [others.expired(4.5) for _ in range(3)] == ["c3", "d4", None]
    assert others.left(100.0) is None
    assert not others.any_may_go
    assert others.newest == 8.0


def test_expired_blocks_go_before_those_of_retired_versions_and_the_policys_choice(tmp_path):
    clock = Clock()
    store = open_store(tmp_path, rules=Rules(policy="lru_freq", ttl_seconds=100), clock=clock)
    for number in range(2):
        put(store, number, 1)
        used_at(store, number, 1, clock.now)
    clock.now += 80
    for chain in (2, 3, 4):
        put(store, 0, chain, label="old@1")
    for number in range(3):
        put(store, number, 5)
    store.use([key_of(0, 1)])
    clock.now += 80
    store.directory.retire("old@1")
    for chain in range(6, 9):
        assert put(store, 0, chain)
    assert there(store, [(0, 1), (1, 1)]) == [True, False]
    assert evictions(store) == {"expired": 1, "retired": 2}


def test_what_is_pinned_or_used_by_another_process_does_not_go_as_expired(tmp_path):
    clock = Clock()
    rules = Rules(ttl_seconds=100, pinned_share=0.2)
    store = open_store(tmp_path, blocks=6, rules=rules, clock=clock)
    for chain in range(6):
        put(store, 0, chain)
        used_at(store, 0, chain, clock.now)
    store.pin([key_of(0, 0)])
    clock.now += 200
    used_at(store, 0, 1, clock.now)
    for chain in range(10, 14):
        assert put(store, 0, chain)
    assert there(store, [(0, chain) for chain in range(6)]) == [True, True, *[False] * 4]
    assert evictions(store) == {"expired": 4}


def test_a_clock_that_jumps_forward_and_back_loses_nothing(tmp_path):
    clock = Clock(time.time())
    store = open_store(tmp_path, rules=Rules(ttl_seconds=DAY), clock=clock)
    for chain in range(4):
        put(store, 0, chain)
    keys = [key_of(0, chain) for chain in range(4)]
    clock.jump(2 * DAY)
    assert not any(store.contains(key) for key in keys)
    assert load(store, 0) == "expired"
    clock.jump(-2 * DAY)
    assert all(store.contains(key) for key in keys), "it stays unfindable"
    assert all(load(store, 0, chain) == "hit" for chain in range(4))


def test_a_clock_that_jumps_forward_does_not_give_the_new_model_to_the_old_one(tmp_path):
    clock = Clock(time.time())
    rules = Rules(ttl_seconds=DAY)
    old = open_store(tmp_path, material=FIRST, rules=rules, clock=clock)
    put(old, 0)
    new = open_store(tmp_path, material=SECOND, rules=rules, clock=clock)
    for chain in range(6):
        put(new, 0, chain)
    clock.jump(2 * DAY)
    used_at(new, 0, 0, clock.now, material=SECOND)
    for chain in range(20):
        put(old, 0, 100 + chain)
    clock.jump(-2 * DAY)
    for chain in range(20):
        put(old, 0, 200 + chain)
    assert all(load(new, 0, chain) == "hit" for chain in range(6))


def test_a_use_is_noted_again_after_the_clock_was_set_back(tmp_path):
    clock = Clock(time.time())
    store = open_store(tmp_path, rules=Rules(ttl_seconds=DAY), clock=clock)
    put(store, 0)
    clock.jump(0.5 * DAY)
    store.use([key_of(0)])
    noted = file_of(store, 0).stat().st_mtime
    clock.jump(-0.5 * DAY)
    store.use([key_of(0)])
    assert file_of(store, 0).stat().st_mtime == pytest.approx(noted - 0.5 * DAY)


def test_steady_time_follows_the_clock_and_never_runs_ahead():
    clock = Clock(1000.0)
    steady = SteadyTime(clock, clock.elapsed)
    clock.now += 10
    assert steady() == 1010
    clock.jump(500)
    clock.now += 1
    assert steady() == 1011
    clock.jump(-600)
    assert steady() == 911
    assert boot_seconds() <= boot_seconds()


def test_one_with_a_smaller_bound_leaves_the_others_theirs(tmp_path):
    large = open_store(tmp_path, blocks=20)
    for chain in range(20):
        put(large, 0, chain)
    small = open_store(tmp_path, blocks=4)
    assert small.snapshot()["max_bytes"] == 20 * ROOM
    assert len(small.keys()) == 20, "it cannot order what it does not know"
    for chain in range(100, 106):
        assert put(small, 0, chain)
    assert disk_bytes(tmp_path) == 20 * ROOM
    assert there(large, [(0, chain) for chain in range(20)]) == [False] * 6 + [True] * 14


def test_when_the_one_with_the_larger_bound_has_gone_the_smaller_one_holds(tmp_path, monkeypatch):
    monkeypatch.setattr("prefixctl.tiers.lookout.LOOK_AGAIN_SECONDS", 0.0)
    large, small = open_store(tmp_path, blocks=300), open_store(tmp_path, blocks=4)
    for chain in range(150):
        put(large, 0, chain)
    assert put(small, 0, 500)
    large.close()
    assert put(small, 0, 501)
    assert disk_bytes(tmp_path) == 4 * ROOM == small.snapshot()["bytes"]
    assert [load(small, 0, chain) for chain in (148, 149, 501)] == ["hit"] * 3


def test_a_lowered_bound_lets_the_blocks_go_that_were_not_used_for_longest(tmp_path):
    clock = Clock(time.time() - 1000)
    store = open_store(tmp_path, blocks=100, clock=clock)
    for chain in range(30):
        for number in range(3):
            put(store, number, chain)
            used_at(store, number, chain, clock.now + (500 if chain == 7 else chain))
    store.close()
    store = open_store(tmp_path, blocks=9, clock=clock)
    assert disk_bytes(tmp_path) == 9 * ROOM == store.snapshot()["bytes"]
    kept = [chain for chain in range(30) if all(there(store, [(n, chain) for n in range(3)]))]
    assert kept == [7, 28, 29]
    assert evictions(store) == {"space": 81}


def test_files_that_were_removed_by_hand_give_their_space_back(tmp_path):
    store = open_store(tmp_path, blocks=4)
    for chain in range(4):
        put(store, 0, chain)
    shutil.rmtree(tmp_path / OURS.folder)
    assert all(put(store, 0, 50 + chain) for chain in range(9))
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path) == 4 * ROOM
    assert store.directory.materials() == [OURS.folder], "an operator would not find its blocks"


def test_another_models_files_that_were_removed_by_hand_give_their_space_back(tmp_path):
    first, second = open_store(tmp_path, material=FIRST), open_store(tmp_path, material=SECOND)
    for chain in range(4):
        put(second, 0, chain)
        put(first, 0, chain)
    shutil.rmtree(tmp_path / SECOND.folder)
    first.refresh()
    assert first.snapshot()["bytes"] == disk_bytes(tmp_path) == 4 * ROOM
    assert all(put(first, 0, 10 + chain) for chain in range(4))
    assert not evictions(first)


def test_a_recount_under_way_never_makes_the_total_too_small(tmp_path):
    store, other = open_store(tmp_path, blocks=400), open_store(tmp_path, blocks=400)
    stop, wrong = threading.Event(), []

    def recount():
        while not stop.is_set():
            other.directory.recount(lambda *_: None)
            with store.directory.locked():
                if store.directory.total_bytes < disk_bytes(tmp_path):
                    wrong.append((store.directory.total_bytes, disk_bytes(tmp_path)))

    thread = threading.Thread(target=recount)
    thread.start()
    for chain in range(300):
        put(store, 0, chain)
        if chain % 3 == 0:
            store.discard(key_of(0, chain))
    stop.set()
    thread.join()
    assert not wrong
    other.refresh()
    assert store.directory.total_bytes == disk_bytes(tmp_path) == 200 * ROOM


def test_closing_gives_back_the_space_of_what_was_not_finished(tmp_path):
    store, other = open_store(tmp_path), open_store(tmp_path)
    with store.directory.locked():
        descriptor, _ = store.directory.reserve(5000)
    assert other.snapshot()["bytes"] == 8192
    store.close()
    os.close(descriptor)
    assert other.snapshot()["bytes"] == 0


def test_other_models_are_not_listed_again_and_again_in_vain(tmp_path, monkeypatch):
    monkeypatch.setattr("prefixctl.tiers.lookout.LOOK_AGAIN_SECONDS", 0.01)
    old = open_store(tmp_path, material=FIRST)
    put(old, 0)
    new = open_store(tmp_path, material=SECOND)
    for chain in range(7):
        put(new, 0, chain)
    listed = []
    files = old.directory.files
    monkeypatch.setattr(
        old.directory, "files", lambda name=None: listed.append(name) or files(name)
    )
    until = time.monotonic() + 0.5
    chain = 100
    while time.monotonic() < until:
        put(old, 0, chain)
        chain += 1
    assert 1 <= listed.count(SECOND.folder) <= 8
    assert evictions(old)["space"] == chain - 100


def test_the_folder_is_not_locked_while_it_is_listed_or_space_is_taken(tmp_path, monkeypatch):
    old = open_store(tmp_path, blocks=4, material=FIRST)
    store = open_store(tmp_path, blocks=4, material=SECOND)
    for chain in range(4):
        put(old, 0, chain)
    free = []

    def probe(real, *given):
        free.append(store.directory._total.threads.acquire(blocking=False))
        if free[-1]:
            store.directory._total.threads.release()
        return real(*given)

    monkeypatch.setattr(store.directory, "files", partial(probe, store.directory.files))
    monkeypatch.setattr(os, "posix_fallocate", partial(probe, os.posix_fallocate))
    assert put(store, 0, 9)
    store.refresh()
    assert len(free) > 2
    assert all(free)


def test_the_view_names_victims_as_a_server_would_choose_them(tmp_path):
    clock = Clock(time.time() - 500)
    rules = Rules(ttl_seconds=1000)
    first = open_store(tmp_path, material=FIRST, rules=rules, clock=clock)
    put(first, 0, label="a")
    second = open_store(tmp_path, material=SECOND, rules=rules, clock=clock)
    third = open_store(tmp_path, rules=rules, clock=clock)
    for chain, age in enumerate((300, 100)):
        put(second, 0, chain, label=f"b{chain}")
        used_at(second, 0, chain, time.time() - age, material=SECOND)
    for chain, (label, age) in enumerate([("c", 200), ("d", 150), ("old@1", 10), ("e", 2000)]):
        put(third, 0, chain, label=label)
        used_at(third, 0, chain, time.time() - age)
    third.directory.retire("old@1")
    third.close()
    shown = [victim.version for victim in view_tier(tmp_path, rules).victims]
    assert shown == ["a", "e", "b0", "c", "d", "b1", "old@1"], "the second one is served, alone"
    second.close()
    first.close()
    shown = [victim.version for victim in view_tier(tmp_path, rules).victims]
    assert shown == ["a", "b0", "b1", "e", "old@1", "c", "d"]
