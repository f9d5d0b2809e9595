"""A restart with a filled NVMe tier, beside one without tiers.

Usage: python bench/restart.py [--prompts N] [--tokens N] [--size 160m|5m]. Fills a server, stops
it, starts it again, and asks for every prefix once. Exits 1 if a prefix does not hit all its full
blocks, if an output is another one than that of a hit on the device, or if the median time to
first token is more than a fifth of recomputing. A hit computes the tail in another shape than a
cold request, so rounding may decide a token of a deep random model: how often is printed for
both; `bench/tiers.py` compares with uncached outputs on a shallow one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from kit.tiers import BLOCK_TOKENS, Answer, compare, make_model, median, prompts, serving

from prefixctl.core.tiering import NvmeSettings, TierSettings

BAR = 0.2
GIB = 2**30


def restarted(
    folder: Path, model: Path, asked: list[list[int]], tiers: TierSettings | None
) -> list[list[Answer]]:
    """Answers of the first server, asked twice, and of the second one."""
    answers = []
    for turn in ("first", "second"):
        log = folder / f"{turn}-{'tiers' if tiers else 'stock'}.log"
        with serving(model, log, device_blocks=1000, tiers=tiers) as (client, _):
            client.ask(prompts(1, 64, seed=9)[0])  # the first request of a process is slow
            answers.append([client.ask(prompt) for prompt in asked])
            if turn == "first":
                answers.append([client.ask(prompt) for prompt in asked])
            if tiers:
                client.settle()
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--size", choices=("160m", "5m"), default="160m")
    options = parser.parse_args()
    asked = prompts(options.prompts, options.tokens)
    full = (options.tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    with tempfile.TemporaryDirectory(prefix="prefixctl-restart-") as name:
        folder = Path(name)
        model = make_model(folder / "model", options.size)
        nvme = NvmeSettings(path=str(folder / "tier"), max_bytes=4 * GIB)
        first, device, second = restarted(
            folder, model, asked, TierSettings(host_bytes=2 * GIB, nvme=nvme)
        )
        cold, _, again = restarted(folder, model, asked, None)
    same = compare(device, second)
    hit, recomputed = (median([a.ttft_seconds for a in side]) for side in (second, again))
    report = {
        "prompts": options.prompts,
        "prompt_tokens": options.tokens,
        "full_block_tokens": full,
        "cached_after_restart": sorted({a.cached for a in second}),
        "cached_after_restart_without_tiers": sorted({a.cached for a in again}),
        "ttft_median_ms": {
            "restarted with tiers": round(1e3 * hit, 1),
            "restarted without": round(1e3 * recomputed, 1),
            "cold with tiers": round(1e3 * median([a.ttft_seconds for a in first]), 1),
        },
        "ratio": round(hit / recomputed, 3),
        "bar": BAR,
        "disk hit against device hit": same,
        "disk hit against cold": compare(cold, second),
        "device hit against cold": compare(cold, device),
    }
    print(json.dumps(report))
    whole = all(a.cached == full for a in second)
    return 0 if whole and hit <= BAR * recomputed and not same["different"] else 1


if __name__ == "__main__":
    sys.exit(main())
