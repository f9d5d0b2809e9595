"""The order of blocks: chains in any order of arrival, many at a time, what another one stored."""

from __future__ import annotations

import random
import threading
import time

import pytest
from tiering import OURS, ROOM, Clock, body_of, file_of, key_of, load, open_store, place, put, there

from prefixctl.core.policy.tier import Rules
from prefixctl.tiers.block import Header, owner_tag
from prefixctl.tiers.index import Index, by_depth, by_use
from prefixctl.tiers.learn import BATCH
from prefixctl.tiers.store import BlockStore


def header(number, chain=0, **changes):
    where = place(number, chain, **changes)
    return where.header(material=bytes(32), body_bytes=1, stored_bytes=1, created=0.0)


def index(slots=200, clock=None, **rules):
    return Index(slots=slots, rules=Rules(**rules), clock=clock or Clock())


def drain(some):
    out = []
    while (entry := some.victim()) is not None:
        out.append(entry)
    return out


@pytest.mark.parametrize("policy", ["lru", "lru_freq", "cost_aware"])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_tail_goes_before_what_it_hangs_on_in_whatever_order_they_came(policy, shares, seed):
    some = index(policy=policy, shares=shares)
    blocks = [(number, chain) for chain in range(6) for number in range(16)]
    random.Random(seed).shuffle(blocks)
    for number, chain in blocks:
        some.add(header(number, chain, owner=owner_tag(str(chain % 3))), 0.0)
    out = drain(some)
    assert len(out) == len(blocks)
    for chain in range(6):
        keys = [key_of(number, chain) for number in range(16)]
        assert [e.depth for e in out if e.key in keys] == list(range(15, -1, -1))
    assert not some._orphans


def test_one_job_in_any_order_is_one_chain_on_the_disk(tmp_path):
    store = open_store(tmp_path, blocks=16)
    order = list(range(16))
    random.Random(3).shuffle(order)
    for number in order:
        assert put(store, number)
    for number in range(15, 7, -1):
        assert put(store, 0, 100 + number)
        assert there(store, [(n, 0) for n in range(16)]) == [n < number for n in range(16)]


def test_a_block_that_came_back_holds_its_children_again(tmp_path):
    store = open_store(tmp_path, blocks=4)
    for number in range(3):
        put(store, number)
    file_of(store, 1).write_bytes(bytes(file_of(store, 1).stat().st_size))
    assert load(store, 1) == "checksum"
    assert put(store, 1)
    store.use([key_of(number) for number in range(3)])
    put(store, 0, 1)
    store.use([key_of(0, 1)])
    for chain in (2, 3):
        put(store, 0, chain)
        store.use([key_of(0, chain)])
    assert there(store, [(0, 0), (1, 0), (2, 0)]) == [True, False, False]


def test_children_that_left_are_not_expected_any_more():
    some = index()
    some.add(header(3), 0.0)
    some.remove(key_of(3))
    some.add(header(2), 0.0)
    assert [entry.depth for entry in drain(some)] == [2]
    assert not some._orphans


def test_a_retired_version_that_arrived_tail_first_goes_as_a_whole(tmp_path):
    store = open_store(tmp_path, blocks=8)
    for number in (3, 1, 0, 2):
        put(store, number, label="support@1")
    for number in range(4):
        put(store, number, 1, label="support@2")
    store.directory.retire("support@1")
    for chain in range(2, 6):
        assert put(store, 0, chain)
    assert store.snapshot()["evictions"]["retired"] == 4
    assert all(there(store, [(number, 1) for number in range(4)]))


def test_entering_in_pieces_is_entering_at_once():
    found = [(header(n, chain), float(10 * chain + 7 * n % 5)) for chain in range(9)
             for n in range(9)]  # fmt: skip
    at_once, pieces = index(policy="cost_aware"), index(policy="cost_aware")
    at_once.add_all(found)
    for step, order in ((pieces.enter, by_depth(found)), (pieces.release, by_use(found))):
        for start in range(0, len(order), 7):
            step(order[start : start + 7])
    assert [e.key for e in drain(at_once)] == [e.key for e in drain(pieces)]


def test_blocks_that_are_being_entered_may_be_used_and_removed():
    some = index(shares=True, pinned_share=1.0)
    found = [(header(number), float(number)) for number in range(6)]
    some.enter(by_depth(found))
    assert some.victim() is None
    some.use([key_of(5)])
    some.remove(key_of(4))
    some.pin([key_of(3)])
    some.release(by_use(found))
    some.unpin([key_of(3)])
    assert sorted(entry.depth for entry in drain(some)) == [0, 1, 2, 3, 5]


def test_an_index_that_grows_keeps_order_and_pins():
    some = index(slots=6, pinned_share=0.5)
    some.add_all([(header(0, chain), float(chain)) for chain in (3, 1, 2, 0, 5, 4)])
    some.pin([key_of(0, 1)])
    some.enlarge(20)
    some.add_all([(header(0, chain), float(chain)) for chain in range(6, 12)])
    assert some.pinned == 1
    assert [e.used for e in drain(some)] == [0.0, *map(float, range(2, 12))]


class Watched:
    """A test double for a lock that notes how long one thread works while it holds it."""

    def __init__(self, lock):
        self._lock, self.longest = lock, 0.0

    def __enter__(self):
        self._lock.acquire()
        self._since = time.thread_time()

    def __exit__(self, *_):
        self.longest = max(self.longest, time.thread_time() - self._since)
        self._lock.release()


def test_lookups_go_on_while_a_folder_is_learned(tmp_path, monkeypatch):
    blocks = 12 * BATCH
    writer = open_store(tmp_path, blocks=blocks, block_bytes=64)
    reader = open_store(tmp_path, blocks=blocks, block_bytes=64)
    for chain in range(blocks // 10):
        for number in range(10):
            put(writer, number, chain)
    entered = []
    enter = reader._index.enter
    monkeypatch.setattr(
        reader._index, "enter", lambda found: entered.append(len(found)) or enter(found)
    )
    reader._learner._lock = lock = Watched(reader._lock)
    thread = threading.Thread(target=reader.refresh)
    thread.start()
    while thread.is_alive():
        assert reader.contains(key_of(0))
        time.sleep(0.001)
    thread.join()
    assert sorted(reader.keys()) == sorted(writer.keys())
    assert max(entered) <= BATCH
    assert lock.longest < 0.03


def test_a_refresh_forgets_what_is_gone_and_removes_what_is_no_block(tmp_path):
    store, other = open_store(tmp_path), open_store(tmp_path)
    for number in range(4):
        put(other, number)
    store.refresh()
    other.discard(key_of(1))
    file_of(store, 2).write_bytes(b"torn")
    (file_of(store, 3).parent / "nothing.kv").write_bytes(b"x")
    store.refresh()
    assert sorted(store.keys()) == sorted(key_of(number) for number in (0, 3))
    assert store.snapshot()["evictions"]["damaged"] == 2
    assert store.snapshot()["bytes"] == 2 * ROOM


def test_a_block_that_another_one_stored_first_is_not_counted_and_keeps_its_owner(
    tmp_path, monkeypatch
):
    ours, other = open_store(tmp_path), open_store(tmp_path)
    commit = ours.directory.commit

    def late(*given, **more):
        assert put(other, 0, owner=owner_tag("bank"), label="support@1")
        return commit(*given, **more)

    monkeypatch.setattr(ours.directory, "commit", late)
    assert put(ours, 0, owner=owner_tag("shop"), label="support@2")
    assert (ours.snapshot()["stored"], other.snapshot()["stored"]) == (0, 1)
    known = ours.place_of(key_of(0))
    assert (known.owner, known.label) == (owner_tag("bank"), "support@1")
    assert ours.snapshot()["bytes"] == ROOM
    assert load(ours, 0) == "hit"


def test_owners_and_labels_are_kept_once_for_all_blocks(tmp_path):
    store = open_store(tmp_path)
    for number in range(3):
        put(store, number, owner=owner_tag("shop"), label="support@" + "1")
    store.close()
    again = BlockStore(tmp_path, material=OURS, block_bytes=8000, max_bytes=8 * ROOM)
    first, second, third = (again._index.entries[key_of(number)] for number in range(3))
    assert first.owner is second.owner
    assert first.label is second.label
    assert second.parent is first.key
    assert third.parent is second.key


def test_a_header_of_an_entry_says_what_an_index_needs():
    some = index()
    given = header(1, owner=owner_tag("shop"), label="v@1")
    some.add(given, 5.0)
    made = some.entries[key_of(1)].header
    assert isinstance(made, Header)
    assert [(h.key, h.parent, h.depth, h.owner, h.label) for h in (given, made)] == 2 * [
        (key_of(1), key_of(0), 1, owner_tag("shop"), "v@1")
    ]
    assert body_of(given.key)
