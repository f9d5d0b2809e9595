"""What others do to a tier's folder: links, huge files, a total that is gone, a stopped process."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tiering import (
    OURS,
    ROOM,
    body_of,
    disk_bytes,
    file_of,
    key_of,
    load,
    open_store,
    put,
    there,
)
from tmpfs import small_disk

from prefixctl.core.policy.tier import Rules
from prefixctl.errors import InputError
from prefixctl.tiers.admin import count_owners, purge_owners, retire_version
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.directory import TierDirectory
from prefixctl.tiers.keyring import KeyRing, create_key, destroy_key
from prefixctl.tiers.material import Material
from prefixctl.tiers.serving import note_serving, serving
from prefixctl.tiers.view import is_tier, view_tier
from prefixctl.tiers.write import Place

SHOP = {owner_tag("shop")}
OLD, NEW = Material({"model": "old"}), Material({"model": "new"})


def fill(store, chains=4):
    for chain in range(chains):
        for number in range(8):
            put(store, number, 50 + chain)


def refused(store):
    return {reason: n for reason, n in store.counters.snapshot()["refused"].items() if n}


# Links.


def test_a_link_in_a_blocks_place_frees_no_space_and_goes(tmp_path):
    store = open_store(tmp_path / "tier")
    for number in range(8):
        put(store, number)
    big = tmp_path / "big"
    big.touch()
    os.truncate(big, 10**9)
    for number in (6, 7):
        file_of(store, number).unlink()
        file_of(store, number).symlink_to(big)
    assert load(store, 7) == "unreadable"
    store.refresh()
    assert store.snapshot()["bytes"] == 6 * ROOM
    assert not any(file_of(store, number).is_symlink() for number in (6, 7))
    assert big.stat().st_size == 10**9
    fill(store)
    assert disk_bytes(tmp_path / "tier") == store.snapshot()["bytes"] == store.max_bytes


def test_a_file_that_has_grown_frees_no_more_than_was_counted(tmp_path):
    store = open_store(tmp_path)
    for number in range(8):
        put(store, number)
    os.truncate(file_of(store, 0), 3 * ROOM)
    os.truncate(file_of(store, 1), 10**9)
    assert load(store, 0) == load(store, 1) == "checksum"
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path) == 6 * ROOM


def test_a_model_that_was_moved_and_linked_is_neither_opened_nor_left_by_a_purge(tmp_path):
    store = open_store(tmp_path / "tier")
    put(store, 0, owner=owner_tag("shop"))
    store.close()
    folder, elsewhere = tmp_path / "tier" / OURS.folder, tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    with pytest.raises(InputError, match=rf"{OURS.folder}: .*a link is in the place of a folder"):
        open_store(tmp_path / "tier")
    assert count_owners(tmp_path / "tier", SHOP) == 1
    purge_owners(tmp_path / "tier", SHOP)
    assert not folder.is_symlink()
    assert len(list(elsewhere.rglob("*.kv"))) == 1, "the purge went through the link"
    assert count_owners(tmp_path / "tier", SHOP) == 0


def test_a_linked_bucket_is_neither_read_nor_written_and_goes(tmp_path):
    store = open_store(tmp_path / "tier")
    put(store, 0)
    bucket, elsewhere = file_of(store, 0).parent, tmp_path / "elsewhere"
    bucket.rename(elsewhere)
    bucket.symlink_to(elsewhere)
    assert load(store, 0) == "unreadable"
    assert not put(store, 0)
    store.discard(key_of(0))
    assert len(list(elsewhere.iterdir())) == 1
    store.refresh()
    assert not bucket.is_symlink()
    assert put(store, 0)
    assert load(store, 0) == "hit"
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path / "tier") == ROOM


# What is no block.


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_huge_file_is_rejected_before_its_size_is_allocated(tmp_path, encrypted):
    keys = None
    if encrypted:
        pytest.importorskip("cryptography")
        create_key(tmp_path / "keys", "*")
        keys = KeyRing(tmp_path / "keys")
    store = open_store(tmp_path / "tier", keyring=keys)
    put(store, 0)
    put(store, 1)
    os.truncate(file_of(store, 0), 2**43)
    assert load(store, 0) == "checksum"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    os.truncate(file_of(store, 1), 2**30)
    assert load(store, 1) == "checksum"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    assert not file_of(store, 0).exists()


def test_what_is_no_plain_file_is_not_waited_for(tmp_path):
    store = open_store(tmp_path)
    for number in range(3):
        put(store, number, owner=owner_tag("shop"))
        file_of(store, number).unlink()
    os.mkfifo(file_of(store, 0))
    os.mkfifo(file_of(store, 1))
    file_of(store, 2).mkdir()
    assert [load(store, number) for number in range(3)] == ["unreadable"] * 3
    assert put(store, 0)
    assert load(store, 0) == "hit"
    assert not put(store, 2)
    assert refused(store) == {"error": 1}
    store.refresh()
    assert not file_of(store, 1).exists()
    purge_owners(tmp_path, SHOP)
    assert count_owners(tmp_path, SHOP) == 1, "nobody knows what is in the folder"


@pytest.mark.parametrize("text", [b"a@\xff1\nsupport@2", b"\xff\xfe", b"support@2"])
def test_retired_versions_of_a_damaged_list(tmp_path, text):
    store = open_store(tmp_path, blocks=4)
    (tmp_path / "retired").write_bytes(text)
    assert all(put(store, number, label="support@2") for number in range(8))
    known = {"support@2"} if b"support" in text else set()
    assert set(view_tier(tmp_path, Rules()).retired) == known
    retire_version(tmp_path, "a@3")
    assert store.directory.retired() == known | {"a@3"}


def test_retired_versions_that_cannot_be_read_are_none_and_are_not_replaced(tmp_path):
    store = open_store(tmp_path, blocks=4)
    (tmp_path / "retired").mkdir()
    assert all(put(store, number) for number in range(8))
    assert view_tier(tmp_path, Rules()).retired == ()
    with pytest.raises(InputError, match="retired: the tier's folder cannot be used"):
        retire_version(tmp_path, "a@3")


@pytest.mark.parametrize("thing", ["file", "loop", "pipe"])
def test_a_bucket_that_is_none_raises_nothing_and_goes(tmp_path, thing):
    store = open_store(tmp_path)
    put(store, 0)
    bucket = file_of(store, 0).parent
    shutil.rmtree(bucket)
    if thing == "file":
        bucket.write_text("x")
    elif thing == "loop":
        bucket.symlink_to(bucket)
    else:
        os.mkfifo(bucket)
    assert load(store, 0) == "unreadable"
    assert not put(store, 0)
    assert refused(store) == {"error": 1}
    store.discard(key_of(0))
    store.refresh()
    assert put(store, 0)
    assert load(store, 0) == "hit"
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path) == ROOM


def test_a_folder_that_cannot_be_listed_is_another_time(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    put(store, 0)

    def failing(*_):
        raise OSError(errno.ENAMETOOLONG, "File name too long")

    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", failing)
        store.refresh()
        with pytest.raises(InputError, match="File name too long"):
            count_owners(tmp_path, SHOP)
    assert load(store, 0) == "hit"


# Whose folder it is.


def test_somebody_elses_folder_is_refused_and_left_as_it_is(tmp_path):
    for name in ("temporary", "writers"):
        (tmp_path / "home" / name).mkdir(parents=True)
        (tmp_path / "home" / name / "novel.txt").write_text("years of work")
    (tmp_path / "home").chmod(0o755)
    with pytest.raises(InputError, match="not empty, and no tier"):
        open_store(tmp_path / "home")
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o755
    assert len(list((tmp_path / "home").rglob("novel.txt"))) == 2
    assert sorted(each.name for each in (tmp_path / "home").iterdir()) == ["temporary", "writers"]


def test_a_folder_that_is_a_loop_is_told_and_one_that_is_a_link_is_followed(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="loop"):
        open_store(tmp_path / "loop")
    assert not is_tier(tmp_path / "loop")
    (tmp_path / "disk").mkdir()
    (tmp_path / "tier").symlink_to(tmp_path / "disk")
    store = open_store(tmp_path / "tier")
    assert put(store, 0)
    assert load(store, 0) == "hit"
    assert count_owners(tmp_path / "tier", {bytes(16)}) == 1
    assert view_tier(tmp_path / "tier", Rules()).bytes == ROOM


def test_a_store_that_was_closed_touches_nothing(tmp_path):
    store = open_store(tmp_path / "tier")
    store.close()
    with (tmp_path / "other").open("wb") as other, (tmp_path / "more").open("wb"):
        assert not put(store, 0)
        store.discard(key_of(0))
        assert not os.fstat(other.fileno()).st_size
    assert refused(store) == {"error": 1}


def test_a_folder_with_a_name_of_ours_is_none_of_ours(tmp_path):
    (tmp_path / "writers").mkdir()
    (tmp_path / "photos").mkdir(mode=0o755)
    with pytest.raises(InputError, match="not empty, and no tier"):
        open_store(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_that_is_open_is_told_and_raises_nothing_later(tmp_path):
    (tmp_path / "tier").mkdir()
    os.chown(tmp_path / "tier", 65534, 65534)
    (tmp_path / "tier").chmod(0o755)
    with pytest.raises(InputError, match="open to other users"):
        open_store(tmp_path / "tier")
    (tmp_path / "tier").chmod(0o700)
    store = open_store(tmp_path / "tier")
    put(store, 0)
    shutil.rmtree(tmp_path / "tier" / OURS.folder)
    (tmp_path / "tier" / OURS.folder).mkdir()
    os.chown(tmp_path / "tier" / OURS.folder, 65534, 65534)
    (tmp_path / "tier" / OURS.folder).chmod(0o755)
    assert not put(store, 1)
    assert refused(store) == {"error": 1}


def test_a_fresh_disk_is_empty(tmp_path):
    for name in ("lost+found", "writers"):
        (tmp_path / "tier" / name).mkdir(parents=True)
    assert put(open_store(tmp_path / "tier"), 0)
    assert stat.S_IMODE((tmp_path / "tier").stat().st_mode) == 0o700


def test_a_tier_without_its_total_is_one(tmp_path):
    store = open_store(tmp_path)
    put(store, 0)
    store.close()
    (tmp_path / "total").unlink()
    assert is_tier(tmp_path)
    again = open_store(tmp_path)
    assert load(again, 0) == "hit"
    assert again.snapshot()["bytes"] == ROOM


# The total.


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, 3),
        lambda path: path.write_bytes(struct.pack("<q", 10**15)),
        lambda path: path.write_bytes(struct.pack("<qqqq", -(10**15), 0, 0, 0)),
        lambda path: path.write_bytes(bytes(32)),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.write_bytes(os.urandom(32)),
    ],
)
def test_a_total_that_is_damaged_is_counted_again_before_anything_is_stored(tmp_path, damage):
    one, two = open_store(tmp_path), open_store(tmp_path)
    for number in range(8):
        put(one, number)
    damage(tmp_path / "total")
    for chain in range(1, 4):
        for number in range(8):
            assert put(one, number, chain)
            assert disk_bytes(tmp_path) <= one.max_bytes
            assert put(two, number, 100 + chain)
            assert disk_bytes(tmp_path) <= one.max_bytes
    three = open_store(tmp_path)
    for number in range(8):
        for store in (one, two, three):
            assert put(store, number, 200 + number)
            assert disk_bytes(tmp_path) <= one.max_bytes
    assert one.snapshot()["bytes"] == two.snapshot()["bytes"] == disk_bytes(tmp_path)


def test_a_total_that_is_mended_while_the_folder_is_read_stays_right(tmp_path):
    store = open_store(tmp_path)
    for number in range(6):
        put(store, number)
    mended = []

    def see(*_):
        if not mended:
            mended.append(1)
            (tmp_path / "total").unlink()
            put(store, 0, 1)

    other = TierDirectory(tmp_path)
    other.recount(see)
    other.close()
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path) == 7 * ROOM


def test_a_folder_that_is_removed_while_servers_run_is_made_again(tmp_path):
    path = tmp_path / "tier"
    one, two = open_store(path), open_store(path)
    for number in range(8):
        put(one, number)
    shutil.rmtree(path)
    assert load(one, 0) == "absent"
    for chain in range(1, 4):
        for number in range(8):
            assert put(one, number, chain)
            assert put(two, number, 100 + chain)
            assert disk_bytes(path) <= one.max_bytes
    assert load(one, 7, 103) == "hit"
    assert {writer.material for writer in one.directory.writers()} == {OURS.folder}
    assert len(one.directory.writers()) == 2
    assert json.loads((path / OURS.folder / "about.json").read_text())["model"] == "ours"
    for each in [path, *path.rglob("*")]:
        assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each.is_dir() else 0o600)


def test_the_small_folders_are_made_again(tmp_path):
    store = open_store(tmp_path)
    (tmp_path / "temporary").rmdir()
    assert not put(store, 0)
    assert put(store, 0)
    shutil.rmtree(tmp_path / "writers")
    store.refresh()
    assert [writer.material for writer in store.directory.writers()] == [OURS.folder]


def test_a_model_that_is_moved_and_linked_while_a_server_runs_is_begun_again(tmp_path):
    store = open_store(tmp_path / "tier")
    put(store, 0)
    folder = tmp_path / "tier" / OURS.folder
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert load(store, 0) == "unreadable"
    assert not put(store, 1)
    store.refresh()
    assert put(store, 1)
    assert load(store, 1) == "hit"
    assert (folder / "about.json").exists()
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path / "tier") == ROOM


def test_a_folder_that_became_somebody_elses_is_left_alone(tmp_path):
    path = tmp_path / "tier"
    store = open_store(path)
    shutil.rmtree(path)
    path.mkdir()
    (path / "novel.txt").write_text("years of work")
    assert not put(store, 0)
    assert refused(store) == {"error": 1}
    assert [each.name for each in path.iterdir()] == ["novel.txt"]
    store.close()


# Start and commands on a disk that fails.


def test_on_a_full_disk_servers_start_and_commands_are_told(tmp_path):
    with small_disk(tmp_path / "disk", 256 * 1024) as disk:
        path = disk / "tier"
        store = open_store(path)
        for number in range(3):
            put(store, number, owner=owner_tag("shop"))
        store.close()
        with (disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError):
            while True:
                ballast.write(bytes(4096))
        again = open_store(path)
        assert load(again, 0) == "hit"
        assert not put(again, 7)
        other = open_store(path, material=NEW)
        note_serving(path, "0123456789abcdef", OURS.folder)
        assert serving(path, "0123456789abcdef") is None
        with pytest.raises(InputError, match="No space left") as full:
            retire_version(path, "a@1")
        assert full.value.hint == "make room on the disk"
        again.close()
        other.close()
        assert not [each for each in path.rglob("*.*") if each.suffix not in {".kv", ".json"}]
        assert purge_owners(path, SHOP) == 3


def test_what_cannot_be_removed_is_in_nobodys_way(tmp_path, monkeypatch):
    store = open_store(tmp_path, blocks=4)
    for number in range(4):
        put(store, number, owner=owner_tag("shop"))
    file_of(store, 0).write_bytes(b"x" * 9000)
    stuck = {str(file_of(store, number)) for number in (0, 3)}
    store.close()
    real = Path.unlink

    def unlink(path, **more):
        if str(path) in stuck:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        real(path, **more)

    monkeypatch.setattr(Path, "unlink", unlink)
    store = open_store(tmp_path, blocks=4)
    assert load(store, 0) == "checksum"
    assert all(put(store, number, 1) for number in range(2))
    assert there(store, [(0, 0), (3, 0), (1, 0)]) == [True, True, False]
    assert disk_bytes(tmp_path) <= store.max_bytes
    assert purge_owners(tmp_path, SHOP) == 0
    assert count_owners(tmp_path, SHOP) == 2


def test_folders_among_writers_and_unfinished_files_are_in_nobodys_way(tmp_path):
    open_store(tmp_path).close()
    for name in ("temporary", "writers"):
        (tmp_path / name / "x").mkdir()
    store = open_store(tmp_path)
    assert put(store, 0)
    store.close()
    assert purge_owners(tmp_path, SHOP) == 0


def test_a_start_that_fails_leaves_nothing_open_and_nothing_behind(tmp_path):
    open_store(tmp_path).close()
    shutil.rmtree(tmp_path / OURS.folder)
    (tmp_path / OURS.folder).write_text("a file")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(InputError, match=OURS.folder):
        open_store(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert not list((tmp_path / "writers").iterdir())


# about.json.


@pytest.mark.parametrize("value", ['"abc"', "null", "[]", "NaN", "1e308", "1e15", "-5", "true", ""])
def test_a_model_that_does_not_say_when_it_was_seen_is_as_old_as_its_folder(tmp_path, value):
    old = open_store(tmp_path, material=OLD)
    for number in range(8):
        put(old, number, owner=owner_tag("shop"))
    old.close()
    about = tmp_path / OLD.folder / "about.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | {"created": "X"}))
    about.write_text(about.read_text().replace('"X"', value) if value else "")
    os.utime(tmp_path / OLD.folder, (1.6e9, 1.6e9))
    store = open_store(tmp_path, material=NEW)
    found = view_tier(tmp_path, Rules()).models
    assert [model.folder for model in found] == [OLD.folder, NEW.folder]
    assert found[0].created == (1.0 if value == "true" else 1.6e9)
    assert abs(found[1].created - time.time()) < 60
    assert all(put(store, number) for number in range(8))
    assert not there(old, [(number, 0) for number in range(8)], material=OLD)[0]
    open_store(tmp_path, material=OLD)
    assert json.loads(about.read_text())["material"] == OLD.digest.hex()
    assert purge_owners(tmp_path, SHOP) == 0


# A store that is interrupted.


@pytest.mark.parametrize("error", [MemoryError, struct.error, KeyboardInterrupt])
@pytest.mark.parametrize("step", ["posix_fallocate", "pwritev", "preadv"])
def test_whatever_ends_a_store_its_space_comes_back(tmp_path, monkeypatch, error, step):
    store = open_store(tmp_path)

    def failing(*_):
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(os, step, failing)
        with pytest.raises(error):
            put(store, 0)
    assert store.snapshot()["bytes"] == 0
    assert not list((tmp_path / "temporary").iterdir())
    assert put(store, 0)


def test_a_depth_that_no_header_holds_is_told(tmp_path):
    store = open_store(tmp_path)
    with pytest.raises(ValueError, match="blocks before it"):
        store.put(Place(key=key_of(0), depth=2**32), body_of(key_of(0)))


# Owners.


def test_owners_are_forgotten_with_their_last_block(tmp_path):
    store = open_store(tmp_path, blocks=4, rules=Rules(shares=True))
    for number in range(200):
        put(store, 0, number, owner=owner_tag(str(number)))
    assert len(store._index._owners) <= 4
    assert len(store._index.entries) == 4


def test_what_an_owner_had_is_forgotten_and_stored_again(tmp_path):
    store = open_store(tmp_path)
    for number in range(4):
        put(store, number, owner=owner_tag("shop"))
    put(store, 0, 1)
    assert store.forget(SHOP) == 4
    assert store.forget(SHOP) == 0
    assert purge_owners(tmp_path, SHOP) == 4
    snapshot = store.snapshot()
    assert (snapshot["blocks"], snapshot["evictions"]["purged"]) == (1, 4)
    assert not store.contains(key_of(0))
    assert put(store, 0, owner=owner_tag("shop"))
    assert load(store, 0) == load(store, 0, 1) == "hit"


# A purge that cannot see.


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_purge_counts_what_it_could_not_look_at_as_left(tmp_path, monkeypatch, code):
    store = open_store(tmp_path, blocks=60)
    for number in range(40):
        put(store, number, owner=owner_tag("shop"))
    real, calls = os.open, []

    def short(path, flags, *more, **named):
        if str(path).endswith(".kv"):
            calls.append(path)
            if len(calls) % 2:
                raise OSError(code, os.strerror(code))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", short)
    assert purge_owners(tmp_path, SHOP) == 20
    assert count_owners(tmp_path, SHOP) == 20
    monkeypatch.setattr(os, "open", real)
    assert count_owners(tmp_path, SHOP) == 20
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path) == 20 * ROOM


def test_what_a_failing_disk_does_not_give_is_removed_or_counted_as_left(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    for number in range(4):
        put(store, number, owner=owner_tag("shop"))
    stuck = {file_of(store, 0), file_of(store, 1)}
    real_open, real_unlink = os.open, Path.unlink

    def failing(path, flags, *more, **named):
        if str(path).endswith(".kv"):
            raise OSError(errno.EIO, "Input/output error")
        return real_open(path, flags, *more, **named)

    def unlink(path, **more):
        if path in stuck:
            raise OSError(errno.EIO, "Input/output error")
        real_unlink(path, **more)

    monkeypatch.setattr(os, "open", failing)
    monkeypatch.setattr(Path, "unlink", unlink)
    purge_owners(tmp_path, SHOP)
    assert count_owners(tmp_path, SHOP) == 2
    assert there(store, [(number, 0) for number in range(4)]) == [True, True, False, False]


# Somebody who keeps the lock.


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A process that is stopped while it holds the lock of the folder and of the keys."""
    monkeypatch.setattr("prefixctl.tiers.files.LOCK_SECONDS", 0.3)
    create_key(tmp_path / "keys", "shop")
    store = open_store(tmp_path / "tier")
    put(store, 0, owner=owner_tag("shop"))
    child = os.fork()
    if not child:
        from prefixctl.tiers import keyring

        directory = TierDirectory(tmp_path / "tier")
        with directory.locked(), keyring._locked(tmp_path / "keys"):
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    yield store, child
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_stopped_process_holds_up_nobody_for_long(stopped, tmp_path):
    store, child = stopped
    started = time.monotonic()
    assert load(store, 0) == "hit"
    assert not put(store, 1)
    for number in range(2, 100):
        assert not put(store, number)
    assert refused(store) == {"error": 99}
    file_of(store, 0).write_bytes(b"")
    assert load(store, 0) == "checksum"
    assert not store.contains(key_of(0))
    store.discard(key_of(0))
    store.refresh()
    for use in (
        lambda: open_store(tmp_path / "tier"),
        lambda: purge_owners(tmp_path / "tier", SHOP),
        lambda: retire_version(tmp_path / "tier", "a@1"),
        lambda: destroy_key(tmp_path / "keys", "shop"),
    ):
        with pytest.raises(InputError, match=rf"locked by process {child}\b") as told:
            use()
        assert "let that go on, or end it" in told.value.hint
    assert count_owners(tmp_path / "tier", SHOP) == 1
    assert time.monotonic() - started < 8


def test_when_a_stopped_process_has_gone_the_stores_go_on(stopped, tmp_path, monkeypatch):
    store, child = stopped
    monkeypatch.setattr("prefixctl.tiers.deposit.FULL_PAUSE_SECONDS", 0.0)
    assert not put(store, 1)
    os.kill(child, signal.SIGCONT)
    os.waitpid(child, 0)
    assert put(store, 1)
    assert load(store, 1) == "hit"
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path / "tier") == 2 * ROOM


def test_space_that_could_not_be_given_back_is_with_the_next_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("prefixctl.tiers.files.LOCK_SECONDS", 0.05)
    monkeypatch.setattr("prefixctl.tiers.deposit.FULL_PAUSE_SECONDS", 0.0)
    store = open_store(tmp_path)
    threads = store.directory._total.threads
    real = os.pwritev

    def slow(*given):
        threads.acquire()
        return real(*given)

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwritev", slow)
        assert not put(store, 0)
    threads.release()
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    assert put(store, 1)
    assert store.snapshot()["bytes"] == disk_bytes(tmp_path) == ROOM
