"""The NVMe tier: what comes back is what was stored, or nothing."""

from __future__ import annotations

import errno
import os
import stat
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiering import (
    BLOCK_BYTES,
    ROOM,
    Clock,
    body_of,
    disk_bytes,
    file_of,
    key_of,
    load,
    open_store,
    place,
    put,
)

from prefixctl.core.policy.tier import Rules
from prefixctl.errors import InputError
from prefixctl.tiers.block import HEADER_BYTES, owner_tag
from prefixctl.tiers.keyring import KeyRing, create_key, destroy_key
from prefixctl.tiers.material import Material


def misses(store, cause):
    return store.snapshot()["misses"][cause]


def test_a_block_comes_back_after_a_restart(tmp_path):
    store = open_store(tmp_path / "tier")
    assert put(store, 0)
    assert put(store, 1)
    store.close()
    store = open_store(tmp_path / "tier")
    assert store.contains(key_of(0))
    assert load(store, 0) == load(store, 1) == "hit"
    assert load(store, 2) == "absent"
    snapshot = store.snapshot()
    assert snapshot["hits"] == 2
    assert snapshot["misses"]["absent"] == 1
    assert snapshot["blocks"] == 2
    assert snapshot["bytes"] == disk_bytes(tmp_path / "tier")
    assert snapshot["load"]["count"] == 2


def test_files_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "tier")
        put(store, 0)
    finally:
        os.umask(before)
    for path in [tmp_path / "tier", *(tmp_path / "tier").rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_a_folder_that_was_open_is_closed(tmp_path):
    (tmp_path / "tier").mkdir(mode=0o755)
    open_store(tmp_path / "tier")
    assert stat.S_IMODE((tmp_path / "tier").stat().st_mode) == 0o700


def test_a_file_where_the_folder_should_be_is_told(tmp_path):
    (tmp_path / "tier").write_text("")
    with pytest.raises(InputError, match="folder cannot be used"):
        open_store(tmp_path / "tier")


def test_a_tier_without_room_for_one_block_is_told(tmp_path):
    with pytest.raises(InputError, match="holds no block"):
        open_store(tmp_path, blocks=0)


@given(offset=st.integers(0, HEADER_BYTES + BLOCK_BYTES - 1), bit=st.integers(0, 7))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_flipped_bit_is_a_miss(tmp_path, offset, bit):
    store = open_store(tmp_path / "tier")
    put(store, 0)
    path = file_of(store, 0)
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)
    assert load(store, 0) == "checksum"
    assert not path.exists()
    assert put(store, 0)
    assert load(store, 0) == "hit"
    store.close()


@pytest.mark.parametrize("size", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 77])
def test_a_truncated_file_is_a_miss(tmp_path, size):
    store = open_store(tmp_path)
    put(store, 0)
    os.truncate(file_of(store, 0), size)
    assert load(store, 0) == "checksum"


def test_a_longer_file_is_a_miss(tmp_path):
    store = open_store(tmp_path)
    put(store, 0)
    with file_of(store, 0).open("ab") as file:
        file.write(b"x")
    assert load(store, 0) == "checksum"


def test_swapped_files_are_misses_and_can_be_stored_again(tmp_path):
    store = open_store(tmp_path)
    put(store, 0)
    put(store, 1)
    one, two = file_of(store, 0), file_of(store, 1)
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    assert load(store, 0) == load(store, 1) == "foreign"
    assert not store.contains(key_of(0))
    assert put(store, 0)
    assert load(store, 0) == "hit"
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path)


def test_a_block_of_another_model_under_our_name_is_a_miss(tmp_path):
    ours, other = open_store(tmp_path), open_store(tmp_path, material=Material({"model": "theirs"}))
    put(ours, 0)
    put(other, 0)
    theirs = file_of(other, 0, material=Material({"model": "theirs"}))
    file_of(ours, 0).write_bytes(theirs.read_bytes())
    assert load(ours, 0) == "foreign"
    ours.close()
    assert not open_store(tmp_path).contains(key_of(0))


def test_other_models_do_not_see_our_blocks(tmp_path):
    put(open_store(tmp_path), 0)
    other = open_store(tmp_path, material=Material({"model": "theirs"}))
    assert not other.contains(key_of(0))
    assert load(other, 0) == "absent"


def test_a_block_deleted_between_lookup_and_load_is_a_miss(tmp_path):
    store = open_store(tmp_path)
    put(store, 0)
    assert store.contains(key_of(0))
    file_of(store, 0).unlink()
    assert load(store, 0) == "absent"
    assert not store.contains(key_of(0))
    assert put(store, 0)
    assert load(store, 0) == "hit"


def test_a_link_is_not_followed(tmp_path):
    store = open_store(tmp_path / "tier")
    put(store, 0)
    path = file_of(store, 0)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert load(store, 0) == "unreadable"


def test_an_idle_block_expires_and_a_used_one_lives(tmp_path):
    clock = Clock()
    store = open_store(tmp_path, rules=Rules(ttl_seconds=100), clock=clock)
    put(store, 0)
    put(store, 0, chain=1)
    for number in (0, 1):
        os.utime(file_of(store, 0, number), (clock.now, clock.now))
    clock.now += 80
    assert load(store, 0) == "hit"
    store.use([key_of(0)])
    clock.now += 80
    assert store.contains(key_of(0))
    assert load(store, 0) == "hit"
    assert not store.contains(key_of(0, 1))
    assert load(store, 0, 1) == "expired"
    assert misses(store, "expired") == 2
    assert put(store, 0, 1)
    os.utime(file_of(store, 0, 1), (clock.now, clock.now))
    assert load(store, 0, 1) == "hit"
    store.close()
    clock.now += 300
    assert load(open_store(tmp_path, rules=Rules(ttl_seconds=100), clock=clock), 0) == "expired"


def test_a_clock_that_jumps_back_serves_nothing_wrong(tmp_path):
    clock = Clock()
    store = open_store(tmp_path, rules=Rules(ttl_seconds=100), clock=clock)
    put(store, 0)
    clock.now -= 1e6
    assert load(store, 0) == "hit"
    put(store, 1)
    store.close()
    again = open_store(tmp_path, rules=Rules(ttl_seconds=100), clock=clock)
    assert load(again, 0) == load(again, 1) == "hit"


@pytest.mark.parametrize("policy", ["lru", "lru_freq", "cost_aware"])
def test_the_bound_holds_and_chains_lose_their_tails_first(tmp_path, policy):
    store = open_store(tmp_path, blocks=8, rules=Rules(policy=policy))
    for chain in range(12):
        for number in range(4):
            assert put(store, number, chain)
            assert disk_bytes(tmp_path) <= store.max_bytes
    snapshot = store.snapshot()
    assert snapshot["blocks"] == 8
    assert snapshot["evictions"]["space"] == 40
    for chain in range(12):
        there = [store.contains(key_of(number, chain)) for number in range(4)]
        assert there == sorted(there, reverse=True), "a child without its parent"


def test_what_was_used_stays_after_a_restart(tmp_path):
    clock = Clock()
    store = open_store(tmp_path, blocks=4, clock=clock, rules=Rules(ttl_seconds=None))
    for chain in range(4):
        put(store, 0, chain)
        os.utime(file_of(store, 0, chain), (clock.now, clock.now))
        clock.now += 100
    store.use([key_of(0, 0)])
    store.close()
    store = open_store(tmp_path, blocks=4, clock=clock, rules=Rules(ttl_seconds=None))
    put(store, 0, 9)
    assert store.contains(key_of(0, 0))
    assert not store.contains(key_of(0, 1))


def test_wanted_blocks_are_kept_whether_they_are_there_or_come_later(tmp_path):
    store = open_store(tmp_path, blocks=8, rules=Rules(pinned_share=0.5))
    put(store, 0)
    store.want([key_of(n) for n in range(3)])
    assert store.snapshot()["pinned_blocks"] == 1
    put(store, 1)
    for chain in range(1, 20):
        put(store, 0, chain)
    assert [load(store, n) for n in (0, 1, 2)] == ["hit", "hit", "absent"]
    store.want([key_of(1)])
    assert store.snapshot()["pinned_blocks"] == 1
    store.want([])
    assert store.snapshot()["pinned_blocks"] == 0
    for chain in range(20, 40):
        put(store, 0, chain)
    assert load(store, 0) == load(store, 1) == "absent"


def test_wanted_blocks_do_not_expire_and_others_that_share_the_folder_keep_them(tmp_path):
    clock = Clock(time.time())
    ours = open_store(tmp_path, rules=Rules(ttl_seconds=1000.0, pinned_share=0.5), clock=clock)
    other = open_store(tmp_path, rules=Rules(ttl_seconds=1000.0), clock=clock)
    put(other, 0)
    put(other, 0, 1)
    ours.want([key_of(0)])
    ours.renew()
    assert ours.snapshot()["pinned_blocks"] == 1, "what another process has written was not found"
    for _ in range(30):
        clock.now += 100
        ours.renew()
    assert load(ours, 0) == "hit"
    assert load(ours, 0, 1) == "expired"
    for chain in range(2, 30):
        clock.now += 101
        ours.renew()
        put(other, 0, chain)
    assert load(other, 0) == "hit", "another process has evicted it"


def test_pinned_blocks_stay_and_the_cap_holds(tmp_path):
    store = open_store(tmp_path, blocks=8, rules=Rules(pinned_share=0.5))
    for number in range(6):
        put(store, number)
    outcome = store.pin([key_of(n) for n in range(6)])
    assert (outcome.pinned, outcome.refused) == (4, 2)
    for chain in range(1, 9):
        for number in range(3):
            assert put(store, number, chain)
    assert [store.contains(key_of(n)) for n in range(6)] == [True] * 4 + [False] * 2
    assert store.snapshot()["pinned_blocks"] == 4
    assert store.unpin([key_of(n) for n in range(6)]) == 4
    for chain in range(20, 40):
        put(store, 0, chain)
    assert not any(store.contains(key_of(n)) for n in range(6))


def test_one_tenant_cannot_push_out_another(tmp_path):
    store = open_store(tmp_path, blocks=8, rules=Rules(shares=True))
    for number in range(3):
        put(store, number, owner=owner_tag("small"))
    for chain in range(1, 20):
        put(store, 0, chain, owner=owner_tag("large"))
    assert all(store.contains(key_of(n)) for n in range(3))


def test_a_retired_version_goes_first_and_the_older_model_before_it(tmp_path):
    clock = Clock()
    old = open_store(tmp_path, blocks=8, material=Material({"model": "old"}), clock=clock)
    for number in range(3):
        put(old, number)
    store = open_store(tmp_path, blocks=8, clock=clock)
    for number in range(2):
        put(store, number, label="support@3")
    for number in range(3):
        put(store, number, 1, label="support@2")
    store.directory.retire("support@2")
    for chain in range(2, 5):
        assert put(store, 0, chain)
    assert not any(file_of(old, n, material=Material({"model": "old"})).exists() for n in range(3))
    for chain in range(5, 8):
        assert put(store, 0, chain)
    evictions = store.snapshot()["evictions"]
    assert (evictions["old_model"], evictions["retired"], evictions["space"]) == (3, 3, 0)
    assert all(store.contains(key_of(n)) for n in range(2))
    assert not any(store.contains(key_of(n, 1)) for n in range(3))


def test_what_a_version_in_use_hangs_on_does_not_go_with_the_retired_one(tmp_path):
    store = open_store(tmp_path, blocks=8)
    for number in range(4):
        put(store, number, label="support@2")
    for number in range(2):  # the next version begins with the same two blocks
        above = key_of(0, 1) if number else key_of(1)
        put(store, number, 1, label="support@3", parent=above, depth=2 + number)
    store.use([key_of(number) for number in range(4)])
    store.use([key_of(0), key_of(1), key_of(0, 1), key_of(1, 1)])
    store.directory.retire("support@2")
    for chain in range(2, 6):
        assert put(store, 0, chain)
    assert store.snapshot()["evictions"]["retired"] == 2
    assert [store.contains(key_of(number)) for number in range(4)] == [True, True, False, False]
    assert store.contains(key_of(0, 1))


def test_an_old_model_never_pushes_out_the_new_one(tmp_path):
    old = open_store(tmp_path, blocks=6, material=Material({"model": "old"}))
    new = open_store(tmp_path, blocks=6)
    for number in range(3):
        put(new, number)
    for number in range(12):
        put(old, number, number)
    assert all(file_of(new, n).exists() for n in range(3))
    assert old.snapshot()["evictions"]["space"] == 9
    assert disk_bytes(tmp_path) <= 6 * ROOM


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_stores_nothing_and_recovers(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    put(store, 0)
    monkeypatch.setattr("prefixctl.tiers.deposit.FULL_PAUSE_SECONDS", 0.0)
    with monkeypatch.context() as broken:
        broken.setattr(os, "posix_fallocate", full_disk)
        assert not put(store, 1)
        assert load(store, 0) == "hit"
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwritev", full_disk)
        assert not put(store, 1)
    assert store.snapshot()["refused"]["disk_full"] == 2
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path) == ROOM
    assert put(store, 1)
    assert load(store, 1) == "hit"


def test_a_failing_disk_is_left_alone_for_a_while(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    calls = []

    def failing(*_):
        calls.append(1)
        full_disk()

    monkeypatch.setattr(os, "posix_fallocate", failing)
    for number in range(50):
        assert not put(store, number)
    assert len(calls) == 1
    assert store.snapshot()["refused"]["disk_full"] == 50


def test_a_write_that_reads_back_differently_is_not_announced(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    write = os.pwritev

    def lying(descriptor, parts, offset):
        return write(descriptor, [parts[0], bytes(len(parts[1]))], offset)

    monkeypatch.setattr(os, "pwritev", lying)
    assert not put(store, 0)
    assert not store.contains(key_of(0))
    assert disk_bytes(tmp_path) == 0 == store.snapshot()["bytes"]


def test_half_written_files_of_the_dead_are_removed_and_of_the_living_kept(tmp_path):
    store = open_store(tmp_path)
    with store.directory.locked():
        descriptor, path = store.directory.reserve(5000)
    dead = tmp_path / "temporary" / "0123456789abcdef.1"
    dead.write_bytes(b"half")
    (tmp_path / "writers" / "0123456789abcdef").touch()
    other = open_store(tmp_path)
    assert path.exists()
    assert not dead.exists()
    assert other.snapshot()["bytes"] == disk_bytes(tmp_path) == 8192
    os.close(descriptor)
    store.close()
    assert not path.exists()


def test_a_store_finds_what_another_has_written(tmp_path):
    one, two = open_store(tmp_path), open_store(tmp_path)
    put(one, 0)
    assert two.contains(key_of(0))
    assert load(two, 0) == "hit"
    assert put(two, 0)
    assert two.snapshot()["stored"] == 0


def test_two_stores_keep_one_bound(tmp_path):
    one, two = open_store(tmp_path, blocks=6), open_store(tmp_path, blocks=6)
    for number in range(30):
        put(one, 0, number)
        put(two, 0, 100 + number)
        assert disk_bytes(tmp_path) <= 6 * ROOM
    assert one.snapshot()["bytes"] == disk_bytes(tmp_path)


def test_one_store_may_evict_what_another_wrote(tmp_path):
    one = open_store(tmp_path, blocks=4)
    two = open_store(tmp_path, blocks=4)
    for number in range(4):
        put(one, 0, number)
    put(two, 0, 9)
    assert put(two, 0, 9)
    assert load(two, 0, 9) == "hit"
    assert disk_bytes(tmp_path) <= 4 * ROOM


def test_a_block_that_another_process_uses_gets_a_second_chance(tmp_path):
    one = open_store(tmp_path, blocks=3)
    for number in range(3):
        put(one, 0, number)
    path = file_of(one, 0, 0)
    later = path.stat().st_mtime + 50
    os.utime(path, (later, later))
    put(one, 0, 3)
    assert one.contains(key_of(0, 0))
    assert not one.contains(key_of(0, 1))


def test_wrong_sizes_are_told(tmp_path):
    store = open_store(tmp_path)
    with pytest.raises(ValueError, match="a block of 3 bytes"):
        store.put(place(0), b"abc")
    with pytest.raises(ValueError, match="label"):
        put(store, 0, label="x" * 65)


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    for name in ("*", "shop", "bank"):
        create_key(path, name)
    return path


def test_encrypted_blocks_hold_no_plain_bytes(tmp_path, keys):
    pytest.importorskip("cryptography")
    store = open_store(tmp_path / "tier", keyring=KeyRing(keys))
    assert put(store, 0, owner=owner_tag("shop"))
    assert put(store, 1)
    assert load(store, 0) == load(store, 1) == "hit"
    for number in (0, 1):
        data = file_of(store, number).read_bytes()
        body = body_of(key_of(number))
        assert not any(body[at : at + 16] in data for at in range(400))
        assert b"shop" not in data
    store.close()
    again = open_store(tmp_path / "tier", keyring=KeyRing(keys))
    assert load(again, 0) == load(again, 1) == "hit"


def test_without_its_key_a_block_is_a_miss_and_with_another_one_too(tmp_path, keys):
    destroy_key(keys, "*")
    store = open_store(tmp_path / "tier", keyring=KeyRing(keys))
    put(store, 0, owner=owner_tag("shop"))
    put(store, 0, 1, owner=owner_tag("bank"))
    assert destroy_key(keys, "shop")
    assert load(store, 0) == "foreign"
    assert load(store, 0, 1) == "hit"
    assert not put(store, 5, owner=owner_tag("shop"))
    assert store.snapshot()["refused"]["no_key"] == 1
    create_key(keys, "shop")
    fresh = open_store(tmp_path / "tier", keyring=KeyRing(keys))
    assert load(fresh, 0) == "foreign"
    assert put(fresh, 0, owner=owner_tag("shop"))
    assert load(fresh, 0) == "hit"


def test_plain_and_encrypted_tiers_do_not_serve_each_other(tmp_path, keys):
    plain, secret = open_store(tmp_path / "t"), open_store(tmp_path / "t", keyring=KeyRing(keys))
    put(plain, 0)
    put(secret, 0, 1)
    assert load(secret, 0) == "foreign"
    assert load(plain, 0, 1) == "foreign"


def test_keys_that_others_may_read_are_refused(tmp_path, keys):
    keys.chmod(0o644)
    with pytest.raises(InputError, match="open to other users"):
        KeyRing(keys)


def test_a_broken_key_file_is_told_with_its_line(tmp_path):
    (tmp_path / "keys").write_text("# ours\nshop notbase64!\n")
    (tmp_path / "keys").chmod(0o600)
    with pytest.raises(InputError) as told:
        KeyRing(tmp_path / "keys")
    assert told.value.line == 2
    with pytest.raises(InputError, match="no name"):
        create_key(tmp_path / "keys", "two words")
