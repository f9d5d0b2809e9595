"""Wishes, the room reserved for them, and when they are hot."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixctl.core.governing import DeviceSettings, governed_part, pin_cap
from prefixctl.core.pinbook import HOUR_SECONDS, PinBook, Wish


def wish(name, *keys, auto_hits=None):
    return Wish(name=name, keys=tuple(str(k).encode() for k in keys), auto_hits=auto_hits)


def test_a_wish_that_fits_is_active_and_wants_its_blocks():
    book = PinBook(3)
    assert book.add(wish("a", 1, 2)).active
    assert book.wants(b"1") and book.wants(b"2") and not book.wants(b"3")
    assert book.reserved == 2


def test_shared_blocks_are_reserved_once_and_kept_for_the_other():
    book = PinBook(3)
    assert book.add(wish("a", 1, 2)).active
    assert book.add(wish("b", 1, 3)).active
    assert not book.add(wish("c", 4)).active
    book.remove("a")
    assert book.wants(b"1") and not book.wants(b"2")
    assert book.add(wish("c", 4)).active


def test_a_refusal_says_what_is_needed_and_leaves_the_old_wish():
    book = PinBook(2)
    book.add(wish("a", 1))
    answer = book.add(wish("a", 1, 2, 3))
    assert not answer.active
    assert "3 more blocks" in answer.reason and "cap of 2" in answer.reason
    assert book.wants(b"1")
    assert book.find("a").wish.keys == (b"1",)


def test_a_new_version_of_a_wish_takes_the_place_of_the_old_one():
    book = PinBook(2)
    book.add(wish("a", 1, 2))
    assert book.add(wish("a", 3, 4)).active
    assert not book.wants(b"1") and book.wants(b"4")


def test_a_wish_without_a_block_is_refused():
    assert PinBook(5).add(wish("a")).reason == "it has no full block"


def test_automatic_pins_heat_up_and_cool_down():
    book = PinBook(5)
    assert not book.add(wish("a", 1, 2, auto_hits=2)).active
    assert book.ending(b"2") == ["a"] and not book.ending(b"1")
    assert book.hit("a", 0.0) is None
    assert book.hit("a", HOUR_SECONDS + 1) is None, "more than an hour apart"
    assert book.hit("a", HOUR_SECONDS + 2).name == "a"
    assert book.wants(b"1")
    assert book.cool(HOUR_SECONDS + 3) == []
    assert [w.name for w in book.cool(2 * HOUR_SECONDS + 10)] == ["a"]
    assert book.reserved == 0
    assert book.find("a").hits == 3


def test_an_automatic_pin_that_does_not_fit_stays_watched():
    book = PinBook(1)
    book.add(wish("a", 1, 2, auto_hits=1))
    assert book.hit("a", 0.0) is None
    assert book.reserved == 0


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 12),
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.lists(st.integers(0, 15), max_size=8, unique=True),
            st.one_of(st.none(), st.integers(1, 3)),
            st.sampled_from(["add", "remove", "hit", "cool"]),
        ),
        max_size=40,
    ),
)
def test_what_is_reserved_is_what_active_wishes_want(cap, steps):
    book = PinBook(cap)
    names: set[str] = set()
    for now, (name, keys, auto_hits, act) in enumerate(steps):
        if act == "add":
            book.add(wish(name, *keys, auto_hits=auto_hits))
        elif act == "remove":
            book.remove(name)
        elif act == "hit" and book.find(name):
            book.hit(name, now * 600.0)
        elif act == "cool":
            book.cool(now * 600.0)
        names.add(name)
        entries = [e for n in names if (e := book.find(n))]
        wanted = {key for e in entries if e.active for key in e.wish.keys}
        assert book.reserved == len(wanted) <= max(cap, 0)
        assert all(book.wants(key) for key in wanted)


@pytest.mark.parametrize(
    ("blocks", "share", "longest", "watermark", "cap"),
    [
        (100, 0.2, 50, 0, 20),
        (100, 0.9, 50, 5, 45),
        (100, 0.2, 100, 0, 0),
        (10, 1.0, 64, 0, 0),
    ],
)
def test_the_cap_leaves_room_for_the_longest_request(blocks, share, longest, watermark, cap):
    found = pin_cap(blocks, share=share, longest_request=longest, watermark=watermark)
    assert found == cap


def part(tokens, ends=(), **settings):
    given = DeviceSettings(**settings)
    return governed_part(tokens, ends, block_tokens=16, token_bytes=1024, settings=given)


def test_the_governed_part_ends_where_a_section_is_too_large():
    assert part(100).tokens == 96
    assert part(100, (40, 100), max_block_bytes=60 * 1024).tokens == 96
    cut = part(200, (40, 200), max_block_bytes=64 * 1024)
    assert cut.tokens == (40 + 64) // 16 * 16 and "governed up to token 96" in cut.reason
    assert part(200, (40, 200), max_block_bytes=64 * 1024, refuse_above=True).refused
    assert part(50, min_tokens=60).tokens == 0


def test_settings_that_the_plugin_does_not_know_are_an_error():
    settings = DeviceSettings(policy="lru_freq", max_block_bytes=5)
    assert DeviceSettings.from_json(settings.to_json()) == settings
    with pytest.raises(ValueError, match="unknown settings: colour"):
        DeviceSettings.from_json({"colour": 1})
