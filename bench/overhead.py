"""What governing costs: throughput without reuse, and the time to first token of a hit.

Usage: python bench/overhead.py [ROUNDS]. In each round a governed server, a stock one and a second
stock one (the A/A run) are started and take turns, in every order equally often: processes differ
by luck, so a round says as little as a pair does. A turn waits until the server before it is quiet:
vLLM's processes poll for a second after their last request, at the cost of everybody else.
Throughput: batches of 8 parallel prompts that nobody has sent before. Hit: one prompt again and
again. A pair is the medians of two turns. Bars, medians of all pairs: throughput at least 0.98 of
stock, time of a hit at most 1.05. Prints its figures last, with bootstrap intervals; exits 1 below
a bar.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, cycle, islice, permutations
from typing import Any

from serving import BLOCK, Client, serving, small_model, tokens_of

ROUNDS = 2
PAIRS = 12
QUIET_SECONDS = 1.3
PARALLEL = 8
PROMPT = 20 * BLOCK
OUTPUT = 16
BATCHES = 3
HITS = 25
THROUGHPUT_BAR = 0.98
HIT_BAR = 1.05
NAMES = ("governed", "stock", "a_a")
_numbers = count(1)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Medians of one server: tokens per second of batches, and seconds of hits."""

    throughput: float
    hit: float


def take_turn(client: Client) -> Turn:
    """Measure a server that has the machine to itself."""
    time.sleep(QUIET_SECONDS)
    tokens_per_second(client)
    speeds = [tokens_per_second(client) for _ in range(BATCHES)]
    hit_seconds(client)
    hits = [hit_seconds(client) for _ in range(HITS)]
    return Turn(throughput=statistics.median(speeds), hit=statistics.median(hits))


def tokens_per_second(client: Client) -> float:
    """Of a batch of prompts that are in no cache."""
    prompts = [tokens_of(next(_numbers), PROMPT) for _ in range(PARALLEL)]
    started = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda p: client.ask(p, max_tokens=OUTPUT), prompts))
    return PARALLEL * (PROMPT + OUTPUT) / (time.perf_counter() - started)


def hit_seconds(client: Client) -> float:
    """Of a prompt whose blocks are cached, but for its last tokens."""
    return client.ask([*tokens_of(0, PROMPT), 5]).seconds


def one_round(clients: Sequence[Client]) -> list[dict[str, Turn]]:
    """The turns of all servers, pair by pair, the first one left out."""
    servers = tuple(zip(NAMES, clients, strict=True))
    orders = islice(cycle(permutations(servers)), 1 + PAIRS)
    return [{name: take_turn(client) for name, client in order} for order in orders][1:]


def interval(ratios: Sequence[float]) -> list[float]:
    """Bootstrap interval of the median, 95 %."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [round(medians[50], 4), round(medians[1949], 4)]


def against_stock(rounds: Sequence[Sequence[dict[str, Turn]]], what: str) -> dict[str, Any]:
    """Ratios of the governed server and of the second stock one to the first stock one."""
    values = [
        [{name: getattr(turn, what) for name, turn in pair.items()} for pair in pairs]
        for pairs in rounds
    ]
    told: dict[str, Any] = {"pairs": sum(map(len, rounds))}
    for name in ("governed", "a_a"):
        each = [[pair[name] / pair["stock"] for pair in pairs] for pairs in values]
        together = [ratio for ratios in each for ratio in ratios]
        told[name] = {
            "median": round(statistics.median(together), 4),
            "interval": interval(together),
            "of_each_round": [round(statistics.median(ratios), 4) for ratios in each],
        }
    stock = statistics.median(pair["stock"] for pairs in values for pair in pairs)
    return told | {"stock_median": round(stock, 5)}


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    turns = []
    with small_model() as folder:
        for _ in range(rounds):
            with (
                serving(folder, blocks=400, policy="lru_freq") as governed,
                serving(folder, blocks=400, policy=None) as stock,
                serving(folder, blocks=400, policy=None) as again,
            ):
                turns.append(one_round((governed, stock, again)))
    throughput, hit = against_stock(turns, "throughput"), against_stock(turns, "hit")
    told = {"throughput": throughput, "throughput_bar": THROUGHPUT_BAR}
    print(json.dumps(told | {"hit": hit, "hit_bar": HIT_BAR}, indent=1))
    reached = (
        throughput["governed"]["median"] >= THROUGHPUT_BAR and hit["governed"]["median"] <= HIT_BAR
    )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
