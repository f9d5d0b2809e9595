"""Hits, pins and evictions under pressure change no token.

Usage: python bench/pressure.py [REQUESTS]. 500 random requests over shared beginnings, eight at a
time, on a governed server whose pool holds a fraction of them, with a pin that comes and goes; the
same requests on a server without a prefix cache; float32. A difference is excused where the two
log-probabilities lie within 1e-3, and counted. Prints its figures last; exits 1 at a difference
that is not excused, or if nothing was hit or evicted.
"""

from __future__ import annotations

import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

from serving import BLOCK, Answer, Client, serving, small_model, tokens_of

TIE = 1e-3
POOL = 150
OUTPUT = 8
PARALLEL = 8
POLICIES = ("lru_freq", "cost_aware")


def requests(number: int) -> list[list[int]]:
    rng = random.Random(11)
    bases = [tokens_of(n, rng.randrange(2, 24) * BLOCK + rng.randrange(BLOCK)) for n in range(40)]
    made = []
    for index in range(number):
        base = bases[int(len(bases) * rng.random() ** 2)]
        cut = base[: rng.randrange(BLOCK, len(base))] if rng.random() < 0.3 else base
        made.append([*cut, *tokens_of(10_000 + index, rng.randrange(1, 90))])
    return made


def ask_pinning(client: Client, number: int, prompt: list[int]) -> Answer:
    """A request; now and then a pin comes or goes before it."""
    if number % 60 == 20:
        client.pin("a@1", tokens_of(0, 2 * BLOCK))
    if number % 60 == 50:
        client.unpin("a@1")
    return client.ask(prompt, max_tokens=OUTPUT, logprobs=True)


def first_difference(ours: Answer, theirs: Answer) -> str:
    """Empty if equal, else "tie" or "wrong"."""
    for position, (mine, other) in enumerate(zip(ours.tokens, theirs.tokens, strict=True)):
        if mine != other:
            best = theirs.best[position]
            here, there = best.get(f"token_id:{mine}"), best.get(f"token_id:{other}")
            close = here is not None and there is not None and abs(here - there) <= TIE
            return "tie" if close else "wrong"
    return ""


def main() -> int:
    prompts = requests(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
    figures: dict[str, dict[str, int]] = {}
    with small_model() as folder, ThreadPoolExecutor(PARALLEL) as pool:
        off = {"enabled": False}
        with serving(folder, blocks=POOL, policy=None, max_model_len=2048, cache=off) as client:
            plain = list(
                pool.map(lambda p: client.ask(p, max_tokens=OUTPUT, logprobs=True), prompts)
            )
        for policy in POLICIES:
            with serving(folder, blocks=POOL, policy=policy, max_model_len=2048) as client:
                ours = list(pool.map(partial(ask_pinning, client), count(), prompts))
                state = client.state()
            differences = [first_difference(a, b) for a, b in zip(ours, plain, strict=True)]
            figures[policy] = {
                "requests": len(prompts),
                "with_a_hit": sum(answer.cached > 0 for answer in ours),
                "cached_tokens": sum(answer.cached for answer in ours),
                "evicted_blocks": {n: v for n, *_, v in state["counters"]}["evictions"],
                "excused_near_ties": differences.count("tie"),
                "wrong": differences.count("wrong"),
            }
    print(json.dumps(figures, indent=1))
    sound = all(
        not f["wrong"] and f["with_a_hit"] and f["evicted_blocks"] for f in figures.values()
    )
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
