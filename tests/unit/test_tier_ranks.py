"""A block of several ranks is announced when every part is stored, and never in part."""

from __future__ import annotations

import errno
import os
import signal

import pytest
from tiering import BLOCK_BYTES, body_of, file_of, key_of, open_store, place

from prefixctl.tiers.ranks import RankedBlocks, marker_bytes

RANKS = 4


def stores(folder):
    return [open_store(folder / str(rank)) for rank in range(RANKS)]


def ranked(folder, version="support@3"):
    markers = open_store(folder / "markers", block_bytes=marker_bytes(RANKS))
    ranks = stores(folder)
    return RankedBlocks(ranks, markers, version=version), ranks


def parts(number, salt=0):
    return [body_of(key_of(number, 1000 + 10 * salt + rank)) for rank in range(RANKS)]


def load(blocks, number, salt=0):
    buffers = [bytearray(BLOCK_BYTES) for _ in range(RANKS)]
    cause = blocks.load(key_of(number), [memoryview(b) for b in buffers])
    if cause is None:
        assert [bytes(b) for b in buffers] == parts(number, salt)
    return "hit" if cause is None else cause.value


def test_all_parts_come_back_also_after_a_restart(tmp_path):
    blocks, _ = ranked(tmp_path)
    assert blocks.put(place(0), parts(0))
    assert load(blocks, 0) == "hit"
    again, _ = ranked(tmp_path)
    assert load(again, 0) == "hit"
    assert again.put(place(0), parts(0))


@pytest.mark.parametrize("failing", range(RANKS))
def test_if_one_rank_fails_nothing_is_left(tmp_path, monkeypatch, failing):
    blocks, ranks = ranked(tmp_path)
    calls = []
    write = os.pwritev

    def fails_once(descriptor, data, offset):
        calls.append(1)
        if len(calls) == failing + 1:
            raise OSError(errno.EIO, "I/O error")
        return write(descriptor, data, offset)

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwritev", fails_once)
        assert not blocks.put(place(0), parts(0))
    assert load(blocks, 0) == "absent"
    assert not any(file_of(store, 0).exists() for store in ranks)


def test_without_its_marker_a_block_is_not_there(tmp_path):
    blocks, ranks = ranked(tmp_path)
    for store, part in zip(ranks, parts(0), strict=True):
        store.put(place(0), part)
    assert load(blocks, 0) == "absent"


@pytest.mark.parametrize("lost", range(RANKS))
def test_a_lost_or_damaged_part_is_a_miss_of_the_whole(tmp_path, lost):
    blocks, ranks = ranked(tmp_path)
    blocks.put(place(0), parts(0))
    blocks.put(place(1), parts(1))
    file_of(ranks[lost], 0).unlink()
    os.truncate(file_of(ranks[lost], 1), 700)
    assert load(blocks, 0) == "absent"
    assert load(blocks, 1) == "checksum"
    for number in (0, 1):
        assert not any(file_of(store, number).exists() for store in ranks)
        assert blocks.put(place(number), parts(number))
        assert load(blocks, number) == "hit"


@pytest.mark.parametrize("stored", range(RANKS + 1))
def test_a_kill_between_the_parts_or_before_the_marker_announces_nothing(tmp_path, stored):
    child = os.fork()
    if not child:
        blocks, ranks = ranked(tmp_path)
        dying = [*ranks, blocks._markers][stored]
        dying.put = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        blocks.put(place(0), parts(0))
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    blocks, ranks = ranked(tmp_path)
    assert sum(file_of(store, 0).exists() for store in ranks) == stored
    assert load(blocks, 0) == "absent"
    assert blocks.put(place(0), parts(0, salt=1)), "what the dead one left is in the way"
    assert load(blocks, 0, salt=1) == "hit"


@pytest.mark.parametrize("replaced", range(RANKS + 1))
def test_a_kill_while_a_block_is_replaced_mixes_no_parts(tmp_path, replaced):
    ranked(tmp_path)[0].put(place(0), parts(0))
    child = os.fork()
    if not child:
        blocks, ranks = ranked(tmp_path)
        dying = [*ranks, blocks._markers][replaced]
        dying.put = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        blocks.put(place(0), parts(0, salt=1))
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    blocks, _ = ranked(tmp_path)
    assert load(blocks, 0) == "absent"
    assert blocks.put(place(0), parts(0, salt=2))
    assert load(blocks, 0, salt=2) == "hit"


def test_parts_of_two_rounds_never_mix(tmp_path):
    blocks, ranks = ranked(tmp_path)
    blocks.put(place(0), parts(0))
    old = file_of(ranks[2], 0).read_bytes()
    assert blocks.put(place(0), parts(0, salt=1))
    assert load(blocks, 0, salt=1) == "hit"
    file_of(ranks[2], 0).write_bytes(old)
    assert load(blocks, 0, salt=1) == "foreign"
    assert load(blocks, 0, salt=1) == "absent"


def test_another_version_is_a_miss(tmp_path):
    blocks, _ = ranked(tmp_path)
    blocks.put(place(0), parts(0))
    newer, _ = ranked(tmp_path, version="support@4")
    assert load(newer, 0) == "foreign"
    assert newer.put(place(0), parts(0))
    assert load(newer, 0) == "hit"


def test_a_block_whose_part_a_full_store_has_evicted_is_not_announced(tmp_path):
    ranks = [open_store(tmp_path / str(rank), blocks=2) for rank in range(RANKS)]
    markers = open_store(tmp_path / "markers", block_bytes=marker_bytes(RANKS))
    blocks = RankedBlocks(ranks, markers, version="support@3")
    for number in range(3):
        assert blocks.put(place(number), parts(number))
    assert not all(file_of(ranks[0], number).exists() for number in range(3))
    for number in range(3):
        if blocks.put(place(number), parts(number)):
            assert load(blocks, number) == "hit"
        assert all(file_of(store, number).exists() for store in ranks)
