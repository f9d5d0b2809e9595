"""The key file: a key that was taken out stays out, whatever else is done at the same time."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from tiering import key_of, load, open_store, put

from prefixctl.errors import InputError
from prefixctl.tiers import keyring
from prefixctl.tiers.block import owner_tag
from prefixctl.tiers.files import write_privately
from prefixctl.tiers.keyring import KeyRing, create_key, destroy_key


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    for name in ("*", "shop"):
        create_key(path, name)
    return path


def names(path):
    return [line.split()[0] for line in path.read_text().splitlines()]


def beside(path):
    return sorted(each.name for each in path.parent.iterdir())


def test_a_key_that_is_destroyed_while_another_one_is_made_does_not_come_back(keys, monkeypatch):
    write, reached, go_on = keyring._write, threading.Event(), threading.Event()

    def slow(path, content):
        if "bank" in content:
            reached.set()
            go_on.wait(5)
        write(path, content)

    monkeypatch.setattr(keyring, "_write", slow)
    making = threading.Thread(target=create_key, args=(keys, "bank"))
    making.start()
    assert reached.wait(5)
    destroying = threading.Thread(target=destroy_key, args=(keys, "shop"))
    destroying.start()
    destroying.join(0.2)
    assert destroying.is_alive(), "it does not wait for who reads the same file"
    go_on.set()
    making.join()
    destroying.join()
    assert names(keys) == ["*", "bank"]


def test_processes_that_make_and_destroy_keys_lose_none(keys):
    children = []
    for number in range(6):
        child = os.fork()
        if not child:
            code = 1
            try:
                for turn in range(5):
                    create_key(keys, f"t{number}-{turn}")
                destroy_key(keys, f"t{number}-0")
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    wanted = {f"t{number}-{turn}" for number in range(6) for turn in range(1, 5)}
    assert set(names(keys)) == {"*", "shop"} | wanted


def test_a_short_write_goes_on_and_is_on_the_disk_before_the_name(tmp_path, monkeypatch):
    write, sync, calls = os.write, os.fsync, []
    monkeypatch.setattr(os, "write", lambda to, data: write(to, bytes(data[:7])))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(beside(tmp_path / "x")) or sync(fd))
    write_privately(tmp_path / "file", "a text of more than seven bytes", durable=True)
    assert (tmp_path / "file").read_text() == "a text of more than seven bytes"
    assert len(calls) == 2
    assert "file" not in calls[0]
    assert calls[1] == ["file"]


def test_a_write_that_fails_leaves_no_key_beside(keys, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    before = keys.read_text()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space"):
        create_key(keys, "bank")
    with pytest.raises(InputError, match="cannot be written"):
        destroy_key(keys, "shop")
    assert keys.read_text() == before
    assert beside(keys) == ["keys", "keys.lock"]
    assert (keys.parent / "keys.lock").stat().st_mode & 0o077 == 0


def test_what_a_killed_writer_left_is_removed_with_the_key(keys):
    child = os.fork()
    if not child:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        create_key(keys, "bank")
        os._exit(0)
    os.waitpid(child, 0)
    left = [name for name in beside(keys) if name not in {"keys", "keys.lock"}]
    assert len(left) == 1, "the test wants a half-done file"
    (keys.parent / "keys.of-somebody").touch()
    assert destroy_key(keys, "shop")
    assert beside(keys) == ["keys", "keys.lock", "keys.of-somebody"]
    assert names(keys) == ["*"]
    assert not destroy_key(keys, "shop")


def test_a_key_file_in_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InputError, match="cannot be changed"):
        create_key(tmp_path / "no" / "keys", "shop")


def test_a_dated_copy_of_the_key_file_stays(tmp_path):
    path = tmp_path / "tier.keys"
    create_key(path, "shop")
    copy = tmp_path / "tier.keys.20261130"
    copy.write_bytes(path.read_bytes())
    create_key(path, "bank")
    assert copy.exists()


def test_a_key_that_comes_back_opens_its_blocks_again(tmp_path):
    keys = tmp_path / "keys"
    create_key(keys, "shop")
    create_key(keys, "bank")
    store = open_store(tmp_path / "tier", keyring=KeyRing(keys))
    for chain, owner in enumerate(("shop", "bank")):
        put(store, 0, chain, owner=owner_tag(owner))
    saved = keys.read_bytes()
    destroy_key(keys, "shop")
    assert load(store, 0) == "foreign"
    assert not store.contains(key_of(0))
    keys.write_bytes(saved)
    assert load(store, 0, 1) == "hit"
    assert store.contains(key_of(0))
    assert load(store, 0) == "hit"
