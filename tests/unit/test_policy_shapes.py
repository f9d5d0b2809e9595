"""The learning policies on made traffic of many shapes: at no capacity far below LRU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prefixctl.core.policy.make import depth_cost
from prefixctl.traffic.replay import replay
from prefixctl.traffic.setup import PLAIN, Setup
from prefixctl.traffic.sweep import sweep_lru
from prefixctl.traffic.workload import Workload

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from shapes import SHAPES, workload

BELOW_LRU = 0.005
LEARNING = ("lru_freq", "cost_aware")


def against_lru(load: Workload, policy: str, capacity: int) -> float:
    cost = depth_cost(load.block_tokens)
    setup = Setup(policy=policy, capacity_blocks=capacity, rules=PLAIN, depth_cost=cost)
    lru = sweep_lru(load, [capacity])[0].block_hit_rate
    return replay(load, setup).block_hit_rate - lru


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_never_far_below_lru(shape: str) -> None:
    load = workload(shape)
    for capacity in (1, 20, load.contents // 50, load.contents // 8, load.contents // 3):
        for policy in LEARNING:
            assert against_lru(load, policy, capacity) >= -BELOW_LRU, (policy, capacity)


@pytest.mark.parametrize("policy", LEARNING)
def test_a_scan_does_not_flush_what_is_asked_for_often(policy: str) -> None:
    load = workload("scans")
    assert against_lru(load, policy, 1_000) > 0.03


@pytest.mark.slow
def test_frequency_alone_collapses_on_agents_and_the_learning_policies_do_not() -> None:
    load = workload("long_agents")
    capacity = load.contents // 10
    assert against_lru(load, "lfu", capacity) < -0.3
    assert all(against_lru(load, policy, capacity) >= -BELOW_LRU for policy in LEARNING)
