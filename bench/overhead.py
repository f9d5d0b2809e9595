"""What governing costs: throughput without reuse, and the time to first token of a hit.

Usage: python bench/overhead.py [PAIRS]. A governed server, a stock one and a second stock one (the
A/A run) take turns. Throughput: batches of 8 parallel prompts that nobody has sent before. Hit: one
prompt again and again. Bars, medians of the pairs: throughput at least 0.98 of stock, time of a hit
at most 1.05. Prints its figures last, with bootstrap intervals; exits 1 below a bar.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from serving import BLOCK, Client, serving, small_model, tokens_of

PARALLEL = 8
PROMPT = 20 * BLOCK
OUTPUT = 16
HITS_PER_PAIR = 40
THROUGHPUT_BAR = 0.98
HIT_BAR = 1.05
_numbers = count(1)


def tokens_per_second(client: Client) -> float:
    prompts = [tokens_of(next(_numbers), PROMPT) for _ in range(PARALLEL)]
    started = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda p: client.ask(p, max_tokens=OUTPUT), prompts))
    return PARALLEL * (PROMPT + OUTPUT) / (time.perf_counter() - started)


def hit_seconds(client: Client) -> float:
    return statistics.median(
        client.ask([*tokens_of(0, PROMPT), 5]).seconds for _ in range(HITS_PER_PAIR)
    )


def interval(ratios: Sequence[float]) -> list[float]:
    """Bootstrap interval of the median, 95 %."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [round(medians[50], 4), round(medians[1949], 4)]


def compare(
    measure: Callable[[Client], float], clients: Sequence[Client], pairs: int
) -> dict[str, object]:
    """Ratios of the governed server and of the second stock one against the stock one."""
    governed, stock, again = clients
    found: dict[str, list[float]] = {"governed": [], "a_a": []}
    for number in range(pairs):
        order = [("governed", governed), ("stock", stock), ("a_a", again)]
        taken = {name: measure(client) for name, client in order[:: 1 if number % 2 else -1]}
        for name, ratios in found.items():
            ratios.append(taken[name] / taken["stock"])
    return {
        name: {"median": round(statistics.median(r), 4), "interval": interval(r)}
        for name, r in found.items()
    }


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with (
        small_model() as folder,
        serving(folder, blocks=400, policy="lru_freq") as governed,
        serving(folder, blocks=400, policy=None) as stock,
        serving(folder, blocks=400, policy=None) as again,
    ):
        clients = (governed, stock, again)
        for client in clients:
            tokens_per_second(client)
            hit_seconds(client)
        throughput = compare(tokens_per_second, clients, pairs)
        hit = compare(hit_seconds, clients, pairs)
    print(json.dumps({"pairs": pairs, "throughput": throughput, "hit": hit}, indent=1))
    reached = (
        throughput["governed"]["median"] >= THROUGHPUT_BAR and hit["governed"]["median"] <= HIT_BAR
    )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
