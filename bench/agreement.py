"""The simulator is the engine: requests of a trace's shape on a real server, beside `simulate`.

Usage: python bench/agreement.py [FOLDER] [REQUESTS]. FOLDER holds the shared traces, default
../shared/traces; without it the trace is generated. Each policy serves the same 300 requests one
after another, on pools that hold 6 and 15 % of their blocks. Prints its figures last; exits 1 where
the token hit rate of a policy is more than .01 from the simulated one.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from itertools import islice, takewhile
from pathlib import Path

from serving import BLOCK, serving, small_model, tokens_of

from prefixctl.api.simulate import Options, simulate

POLICIES = ("lru", "lru_freq", "cost_aware")
TRACE = "tau_airline_blk16.jsonl"
SHARES = (6, 15)
TOLERANCE = 0.01
MOST_BLOCKS = 80
KEPT_COMMON = 20
OUTPUT = 4


def chains(folder: Path, requests: int) -> tuple[str, list[list[int]]]:
    """Block ids of each request, and where they are from."""
    path = folder / TRACE
    if path.is_file():
        with path.open() as lines:
            whole = [json.loads(line)["hash_ids"] for line in islice(lines, requests)]
        # Of what all have in common a part will do: the pool is small.
        common = len(list(takewhile(lambda ids: len(set(ids)) == 1, zip(*whole, strict=False))))
        common -= KEPT_COMMON
        found = [chain[common : common + MOST_BLOCKS] for chain in whole]
        return f"the first {len(found)} requests of {TRACE}", found
    rng = random.Random(3)
    systems = [list(range(1000 * n, 1000 * n + rng.randrange(8, 30))) for n in range(5)]
    running: list[list[int]] = []
    made: list[list[int]] = []
    fresh = 100_000
    for _ in range(requests):
        if not running or rng.random() < 0.4:
            running = [*running[-10:], list(rng.choice(systems))]
        chain = rng.choice(running)
        chain += range(fresh, fresh + rng.randrange(1, 6))
        fresh += 10
        made.append(chain[:MOST_BLOCKS])
    return f"{requests} generated requests of conversations", made


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/traces")
    where, asked = chains(folder, int(sys.argv[2]) if len(sys.argv) > 2 else 300)
    prompts = [
        [token for block in chain for token in tokens_of(block, BLOCK)] + tokens_of(-number - 1, 5)
        for number, chain in enumerate(asked)
    ]
    distinct = len({block for chain in asked for block in chain})
    total = sum(map(len, prompts))
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as made, small_model() as model:
        trace = Path(made) / "trace.jsonl"
        with trace.open("w") as lines:
            for number, (chain, prompt) in enumerate(zip(asked, prompts, strict=True)):
                request = {
                    "timestamp": number * 1000,
                    "input_length": len(prompt),
                    "output_length": OUTPUT,
                    "hash_ids": [*chain, 10**9 + number],
                }
                lines.write(json.dumps(request) + "\n")
        for share in SHARES:
            blocks = distinct * share // 100
            result = simulate(
                trace,
                capacities=[str(blocks)],
                policies=POLICIES,
                options=Options(block_tokens=BLOCK),
            )
            simulated = {row.policy: row.outcome.token_hit_rate for row in result.rows}
            for policy in (None, *POLICIES):
                with serving(model, blocks=blocks, policy=policy, max_model_len=3000) as client:
                    hits = sum(client.ask(p, max_tokens=OUTPUT).cached for p in prompts)
                figures[f"{policy or 'stock'} at {blocks} blocks"] = {
                    "served": round(hits / total, 4),
                    "simulated": round(simulated[policy or "lru"], 4),
                }
                print(
                    policy, blocks, figures[f"{policy or 'stock'} at {blocks} blocks"], flush=True
                )
    apart = max(abs(f["served"] - f["simulated"]) for f in figures.values())
    print(json.dumps({"trace": where, "distinct_blocks": distinct, "hit_rates": figures,
                      "most_apart": round(apart, 4), "bar": TOLERANCE}, indent=1))  # fmt: skip
    return 0 if apart <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
