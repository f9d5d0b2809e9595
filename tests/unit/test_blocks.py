from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixctl.core.blocks import (
    Alignment,
    cache_unit,
    common_prefix_tokens,
    expected_hit_tokens,
)


@pytest.mark.parametrize(
    ("block", "prompt", "hit"),
    [
        (1024, 1024, 0),
        (1024, 1025, 1024),
        (1024, 2047, 1024),
        (1024, 4096, 3072),
        (128, 128, 0),
        (128, 129, 128),
        (128, 256, 128),
        (128, 257, 256),
        (128, 1024, 896),
        (128, 1025, 1024),
    ],
)
def test_a_repeat_never_hits_its_last_token(block: int, prompt: int, hit: int) -> None:
    assert expected_hit_tokens(prompt, prompt, block) == hit


@pytest.mark.parametrize("tail", [1, 2, 127, 128, 129, 200])
def test_a_prefix_with_a_tail_hits_whole(tail: int) -> None:
    assert expected_hit_tokens(512, 512 + tail, 128) == 512


@pytest.mark.parametrize(
    ("prompt", "hit"), [(3784, 0), (7542, 4288), (11292, 8576), (15019, 12864)]
)
def test_speculative_decoding_costs_one_unit(prompt: int, hit: int) -> None:
    assert expected_hit_tokens(prompt, prompt, 2144, speculative=True) == hit


def test_hybrid_groups_align_on_their_least_common_multiple() -> None:
    unit = cache_unit([128, 4096, 32, 2, 8])
    alignment = Alignment(shared_tokens=2048, request_tokens=2100, unit=unit)
    assert unit == 4096
    assert alignment.expected_hit_tokens == 0
    assert "fewer than one cache unit of 4,096" in alignment.explain()


@pytest.mark.parametrize("sizes", [[], [0], [16, -1]])
def test_a_unit_needs_positive_block_sizes(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        cache_unit(sizes)


@pytest.mark.parametrize(("shared", "request_tokens", "unit"), [(5, 4, 1), (-1, 4, 1), (1, 4, 0)])
def test_what_does_not_fit_is_refused(shared: int, request_tokens: int, unit: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        expected_hit_tokens(shared, request_tokens, unit)


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 600))
def test_a_hit_is_whole_units_within_the_prefix_and_before_the_last_token(
    shared: int, more: int, unit: int
) -> None:
    total = shared + more
    hit = expected_hit_tokens(shared, total, unit)
    assert hit % unit == 0
    assert hit <= shared
    assert hit < max(total, 1)
    if shared < total:
        assert hit == shared // unit * unit


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_common_prefix_equals_the_plain_loop(first: list[int], second: list[int]) -> None:
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    assert common_prefix_tokens(first, second) == count


@pytest.mark.parametrize(
    ("shared", "total", "words"),
    [
        (10, 50, "fewer than one cache unit"),
        (16, 16, "no whole unit"),
        (32, 32, "ends with the shared prefix"),
        (40, 90, "8 tail tokens"),
    ],
)
def test_the_explanation_says_why(shared: int, total: int, words: str) -> None:
    assert words in Alignment(shared_tokens=shared, request_tokens=total, unit=16).explain()
