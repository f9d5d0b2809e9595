"""A working set of ten times the device pool: who serves what, and how fast.

Usage: python bench/tiers.py [--prompts N] [--requests N]. Zipf traffic over prompts that need ten
times the device's blocks, on a server with host and NVMe tiers and on stock vLLM, request by
request in turns, so that both see the same machine. Prints the share of prompt tokens that each
tier gave and the time to first token by tier. Outputs are compared with the uncached ones (float32;
near ties are counted). Exits 1 if an output from a tier is another one, if a tier served next to
nothing, if the tiers do not raise the hit share, or if a tier's median is above 1.05 of
recomputing.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kit.tiers import (
    BLOCK_TOKENS,
    SOURCES,
    Answer,
    Client,
    make_model,
    median,
    prompts,
    serving,
)

from prefixctl.core.tiering import NvmeSettings, TierSettings

BAR = 1.05
FEWEST = 10
"""Requests that each tier must have served, so that its figures say something."""
MIB = 2**20
DEVICE_BLOCKS = 150


@dataclass(frozen=True)
class Seen:
    """One request: which tiers gave how many tokens, and its answer."""

    prompt: int
    given: dict[str, int]
    answer: Answer

    @property
    def tier(self) -> str:
        """The slowest tier that gave something, or ``computed``."""
        found = [source for source in SOURCES if self.given[source]]
        return found[-1] if found else "computed"


def traffic(count: int, requests: int, exponent: float = 0.8) -> list[int]:
    """Prompts by Zipf's law; each comes once before it may come again at random."""
    choose = random.Random(7)
    weights = [1 / (rank + 1) ** exponent for rank in range(count)]
    return choose.choices(range(count), weights, k=requests)


def drive(
    clients: dict[str, Client], asked: list[list[int]], order: list[int]
) -> dict[str, list[Seen]]:
    """Each request to both servers in turns, with what each tier gave."""
    seen: dict[str, list[Seen]] = {kind: [] for kind in clients}
    before = {kind: client.by_source() for kind, client in clients.items()}
    for number, index in enumerate(order):
        for kind in sorted(clients, reverse=bool(number % 2)):
            answer = clients[kind].ask(asked[index])
            now = clients[kind].by_source()
            given = {s: now[s] - before[kind][s] for s in SOURCES}
            seen[kind].append(Seen(index, given, answer))
            before[kind] = now
    return seen


def summary(seen: list[Seen], prompt_tokens: int) -> dict[str, object]:
    """Shares and times by tier."""
    total = len(seen) * prompt_tokens
    tiers = ("computed", *SOURCES)
    times = {t: [s.answer.ttft_seconds for s in seen if s.tier == t] for t in tiers}
    return {
        "hit share": {s: round(sum(x.given[s] for x in seen) / total, 3) for s in SOURCES},
        "requests": {t: len(times[t]) for t in tiers},
        "ttft median ms": {t: round(1e3 * median(times[t]), 1) for t in tiers if times[t]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=30)
    parser.add_argument("--requests", type=int, default=500)
    options = parser.parse_args()
    blocks = 10 * DEVICE_BLOCKS // options.prompts
    tokens = blocks * BLOCK_TOKENS + 10
    asked = prompts(options.prompts, tokens, seed=11)
    order = traffic(options.prompts, options.requests)
    with tempfile.TemporaryDirectory(prefix="prefixctl-tiers-") as name:
        folder = Path(name)
        model = make_model(folder / "model")
        nvme = NvmeSettings(path=str(folder / "tier"), max_bytes=1024 * MIB, policy="lru_freq")
        settings = TierSettings(host_bytes=60 * MIB, policy="lru_freq", nvme=nvme)
        with ExitStack() as stack:
            clients = {
                kind: stack.enter_context(
                    serving(model, folder / f"{kind}.log", device_blocks=DEVICE_BLOCKS, tiers=tiers)
                )[0]
                for kind, tiers in (("stock", None), ("tiers", settings))
            }
            for client in clients.values():
                client.ask(prompts(1, 64, seed=9)[0])
            answers = drive(clients, asked, order)
        reports = {kind: summary(seen, tokens) for kind, seen in answers.items()}
    return verdict(options, tokens, reports, answers)


def verdict(
    options: argparse.Namespace,
    tokens: int,
    reports: dict[str, dict[str, object]],
    answers: dict[str, list[Seen]],
) -> int:
    """Print all, and judge."""
    uncached = {
        s.prompt: s.answer
        for seen in answers.values()
        for s in reversed(seen)
        if s.answer.cached == 0
    }
    outcomes = {tier: {"equal": 0, "near tie": 0, "different": 0} for tier in SOURCES}
    for s in answers["tiers"]:
        if s.tier in outcomes:
            outcomes[s.tier][uncached[s.prompt].differs(s.answer)] += 1
    times = reports["tiers"]["ttft median ms"]
    computed = reports["stock"]["ttft median ms"]["computed"]
    ratios = {t: round(times[t] / computed, 3) for t in SOURCES if t in times}
    print(
        json.dumps(
            {
                "device_blocks": DEVICE_BLOCKS,
                "working_set_blocks": options.prompts * (tokens // BLOCK_TOKENS),
                "requests": options.requests,
                **reports,
                "ttft of recomputing (stock) ms": computed,
                "ratios": ratios,
                "bar": BAR,
                "outputs against uncached": outcomes,
            }
        )
    )
    share = {kind: sum(report["hit share"].values()) for kind, report in reports.items()}
    wrong = sum(o["different"] for o in outcomes.values())
    every_tier = all(reports["tiers"]["requests"][tier] >= FEWEST for tier in SOURCES)
    better = share["tiers"] > share["stock"] and max(ratios.values()) <= BAR
    return 0 if every_tier and better and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
