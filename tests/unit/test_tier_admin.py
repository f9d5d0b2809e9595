"""What an operator does to a folder: thorough, and without a look at what does not matter."""

from __future__ import annotations

import stat

import pytest
from tiering import OURS, ROOM, disk_bytes, file_of, load, open_store, put, there

from prefixctl.tiers.admin import count_owners, purge_owners, retire_version
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.material import Material

SHOP = {owner_tag("shop")}


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path / "tier")
    for number in range(4):
        put(store, number, owner=owner_tag("shop" if number < 2 else "bank"))
    return store


def test_purge_removes_an_owner_from_all_models_and_counts_again(store):
    other = open_store(store.directory.path, material=Material({"model": "theirs"}))
    put(other, 0, owner=owner_tag("shop"))
    path = store.directory.path
    assert count_owners(path, SHOP) == 3
    assert purge_owners(path, SHOP) == 3
    assert count_owners(path, SHOP) == 0
    assert there(store, [(number, 0) for number in range(4)]) == [False, False, True, True]
    assert load(store, 0) == "absent"
    assert store.snapshot()["bytes"] == disk_bytes(path) == 2 * ROOM


def test_purge_removes_what_nobody_can_tell_whose_it_is(store):
    path = store.directory.path
    data = file_of(store, 0).read_bytes()
    file_of(store, 0).write_bytes(b"x" + data[1:])
    dead = path / "temporary" / "0123456789abcdef.1"
    dead.write_bytes(data)
    (path / "writers" / "0123456789abcdef").touch()
    assert count_owners(path, SHOP) == 2
    assert purge_owners(path, SHOP) == 1
    assert not file_of(store, 0).exists()
    assert not dead.exists()
    assert count_owners(path, SHOP) == 0


def test_purge_finds_blocks_in_a_folder_that_does_not_say_what_it_is(store):
    path = store.directory.path
    (path / OURS.folder / "about.json").unlink()
    assert purge_owners(path, SHOP) == 2
    assert count_owners(path, SHOP) == 0


def state(path):
    return {
        each: (each.stat().st_mtime_ns, stat.S_IFMT(each.stat().st_mode))
        for each in [path, *path.rglob("*")]
    }


def test_counting_changes_nothing_and_makes_no_folder(store, tmp_path):
    path = store.directory.path
    before = state(path)
    assert count_owners(path, SHOP) == 2
    assert state(path) == before
    assert count_owners(tmp_path / "none", SHOP) == 0
    assert not (tmp_path / "none").exists()


def test_retiring_lists_no_blocks(store, monkeypatch):
    def listed(*_):
        raise AssertionError("the blocks were listed")

    monkeypatch.setattr(TierDirectory, "files", listed)
    monkeypatch.setattr(TierDirectory, "recount", listed)
    retire_version(store.directory.path, "support@1")
    assert store.directory.retired() == {"support@1"}
    retire_version(store.directory.path, "support@1", undo=True)
    assert store.directory.retired() == frozenset()
    left = [each.name for each in (store.directory.path / "writers").iterdir()]
    assert left == [store.directory.id]
