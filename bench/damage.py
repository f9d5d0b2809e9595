"""Damaged blocks on the disk, killed writers, and the same damage on vLLM's own disk tier.

Usage: python bench/damage.py [--prompts N] [--kills N] [--server-kills N] [--parts ...]. Stores
the blocks of N prompts (12 blocks each, 1,152 in all by default), damages every one, and asks
again: every answer must be the uncached one, and every cause must be counted. Then a control with
foreign KV under a right checksum, which must change the outputs; the same damage on vLLM's `fs`
tier; a child that is killed while it stores, again and again; and a server that is killed under
load. Exits 1 if anything wrong was served, or counted wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from kit.tiers import BLOCK_TOKENS, Answer, Client, compare, make_model, prompts, serving

from prefixctl.core.tiering import NvmeSettings, TierSettings
from prefixctl.tiers.block import HEADER_BYTES, BadBlockError, MissCause, checksum, unpack

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit"))
from tier_processes import check_denied, count_temporaries, kill_rounds, share
from tiering import disk_bytes

BLOCKS = 12
TOKENS = BLOCKS * BLOCK_TOKENS + 8
MIB = 2**20
SUM_AT = HEADER_BYTES - 8
Damage = Callable[[Sequence[Path], random.Random], None]


def flip(start: int, end: int | None) -> Damage:
    """Flip one bit of each file, between two offsets."""

    def damage(files: Sequence[Path], choose: random.Random) -> None:
        for path in files:
            data = bytearray(path.read_bytes())
            data[choose.randrange(start, end or len(data))] ^= 1 << choose.randrange(8)
            path.write_bytes(data)

    return damage


def cut(files: Sequence[Path], choose: random.Random) -> None:
    """Truncate each file somewhere."""
    for path in files:
        os.truncate(path, choose.randrange(1, path.stat().st_size))


def empty(files: Sequence[Path], _: random.Random) -> None:
    """Leave no byte of each file."""
    for path in files:
        os.truncate(path, 0)


def swap(files: Sequence[Path], _: random.Random) -> None:
    """Each file gets the content of its neighbour."""
    contents = [path.read_bytes() for path in files]
    for path, data in zip(files, contents[1:] + contents[:1], strict=True):
        path.write_bytes(data)


def other_model(files: Sequence[Path], _: random.Random) -> None:
    """Sound blocks, of a model with the same layout."""
    for path in files:
        data = path.read_bytes()
        header = replace(unpack(data), material=bytes(32))
        path.write_bytes(header.pack() + data[HEADER_BYTES:])


def delete(files: Sequence[Path], _: random.Random) -> None:
    """The server still believes that they are there."""
    for path in files:
        path.unlink()


KINDS: dict[str, tuple[Damage, MissCause]] = {
    "bit in the header": (flip(0, SUM_AT), MissCause.CHECKSUM),
    "bit in the checksum": (flip(SUM_AT, HEADER_BYTES), MissCause.CHECKSUM),
    "bit in the body": (flip(HEADER_BYTES, None), MissCause.CHECKSUM),
    "truncated": (cut, MissCause.CHECKSUM),
    "zero length": (empty, MissCause.CHECKSUM),
    "swapped": (swap, MissCause.FOREIGN),
    "of another model": (other_model, MissCause.FOREIGN),
    "deleted after the lookup": (delete, MissCause.ABSENT),
}
STOCK = {"bit in the file": flip(0, None), "zero length": empty}
OTHERS = "of another prompt"
"""Whole files of another prompt in place of its own. (Files swapped within one prompt hold the same
keys and values in another order, which attention cannot tell apart.)"""


def files_by_prompt(folder: Path, suffix: str, before: set[Path]) -> list[Path]:
    """The files that came since."""
    return sorted(set(folder.rglob(f"*{suffix}")) - before)


def fill(
    client: Client, asked: list[list[int]], folder: Path, suffix: str
) -> tuple[list[Answer], list[list[Path]]]:
    """Ask each prompt for the first time; its answer and its files."""
    answers, files = [], []
    for prompt in asked:
        before = set(folder.rglob(f"*{suffix}"))
        answers.append(client.ask(prompt))
        files.append(wait_for_files(folder, suffix, before))
    return answers, files


def wait_for_files(folder: Path, suffix: str, before: set[Path]) -> list[Path]:
    """The files of one prompt, once all are there."""
    for _ in range(200):
        found = files_by_prompt(folder, suffix, before)
        if len(found) >= BLOCKS:
            return found
        time.sleep(0.05)
    raise SystemExit(f"only {len(found)} of {BLOCKS} blocks were stored")


def damaged(client: Client, folder: Path, asked: list[list[int]]) -> dict[str, Any]:
    """All kinds of damage under a running server."""
    choose = random.Random(1)
    cold, files = fill(client, asked, folder, ".kv")
    expected = dict.fromkeys(MissCause, 0)
    names = list(KINDS)
    for at, group in enumerate(files):
        damage, cause = KINDS[names[at % len(names)]]
        damage(group, choose)
        expected[cause] += len(group)
    before = client.tier("misses")
    again = [client.ask(prompt) for prompt in asked]
    client.settle()
    counted = {k: v - before[k] for k, v in client.tier("misses").items()}
    third = [client.ask(prompt) for prompt in asked]
    return {
        "damaged_blocks": sum(len(group) for group in files),
        "kinds": names,
        "answers": compare(cold, again),
        "cached_tokens_served_of_them": sum(a.cached for a in again),
        "expected_misses": {str(k): v for k, v in expected.items() if v},
        "counted_misses": counted,
        "uncached_first": all(a.cached == 0 for a in cold),
        "stored_again_and_hit": sum(a.cached == BLOCKS * BLOCK_TOKENS for a in third),
        "answers_then": compare(cold, third),
    }


def control(client: Client, folder: Path, asked: list[list[int]]) -> dict[str, Any]:
    """Foreign KV with a right checksum must change the outputs, or the comparison sees nothing."""
    cold, files = fill(client, asked, folder, ".kv")
    originals = [[path.read_bytes() for path in group] for group in files]
    for at, group in enumerate(files):
        bodies = originals[(at + 1) % len(files)]
        for path, body in zip(group, bodies, strict=True):
            stored = body[HEADER_BYTES:]
            path.write_bytes(unpack(path.read_bytes()).sealed(stored).pack() + stored)
    for prompt in prompts(20, TOKENS, seed=77):  # so that nothing is left on device and host
        client.ask(prompt, 1)
    again = [client.ask(prompt) for prompt in asked]
    outcome = compare(cold, again)
    return {"prompts": len(asked), "changed": len(asked) - outcome["equal"], **outcome}


def stock(folder: Path, model: Path, asked: list[list[int]]) -> dict[str, Any]:
    """The same on vLLM's own disk tier, over our copying worker: stock refuses CPU hosts."""
    root = folder / "stock"
    root.mkdir()
    tier = {"type": "fs", "root_dir": str(root)}
    settings = TierSettings(host_bytes=4 * MIB)
    choose = random.Random(2)
    report: dict[str, Any] = {}
    with serving(
        model, folder / "stock.log", device_blocks=140, tiers=settings, further=[tier]
    ) as (client, _):
        cold, files = fill(client, asked, root, ".bin")
        names = [*STOCK, OTHERS]
        contents = [[path.read_bytes() for path in group] for group in files]
        for at, group in enumerate(files):
            name = names[at % len(names)]
            if name == OTHERS:
                for path, data in zip(group, contents[at - 1], strict=True):
                    path.write_bytes(data)
            else:
                STOCK[name](group, choose)
        again = []
        for prompt in asked:
            try:
                again.append(client.ask(prompt))
            except httpx.HTTPError as exc:
                report["stopped"] = type(exc).__name__
                break
        for at, name in enumerate(names):
            pairs = list(zip(cold, again, strict=False))[at :: len(names)]
            report[name] = {
                **compare([one for one, _ in pairs], [two for _, two in pairs]),
                "served_cached_tokens": sum(two.cached for _, two in pairs),
            }
    return report


def server_kills(folder: Path, model: Path, rounds: int) -> dict[str, Any]:
    """Kill -9 a server under load; the next one must start clean, be right, and keep its bound.

    The first server answers every prompt once, uncached; later answers are compared with those.
    Until the kill clients ask for more, half of it never asked for before, and the folder holds
    less than all prompts need, so stores and evictions go on.
    """
    choose = random.Random(3)
    path = folder / "killed"
    nvme = NvmeSettings(path=str(path), max_bytes=60 * MIB)
    settings = TierSettings(host_bytes=8 * MIB, nvme=nvme)
    asked = prompts(60, TOKENS, seed=5)
    cold: list[Answer] = []
    since = 0.0
    report: dict[str, Any] = dict.fromkeys(
        ("compared", "with_hits", "different", "near_ties", "bad_blocks_met", "half_written_left",
         "half_written_after_start", "torn_in_place", "wrong_totals",
         "rounds_with_stores", "most_bytes"), 0,
    )  # fmt: skip
    for number in range(rounds + 1):
        log = folder / f"killed-{number}.log"
        with serving(model, log, device_blocks=140, tiers=settings) as (client, server):
            report["half_written_after_start"] += count_temporaries(path)
            total = int.from_bytes((path / "total").read_bytes()[:8], "little")
            report["wrong_totals"] += total != disk_bytes(path)
            if not cold:
                cold = [client.ask(prompt) for prompt in asked]
                report["references_uncached"] = all(answer.cached == 0 for answer in cold)
            else:
                check_answers(client, asked, cold, choose.sample(range(len(asked)), 20), report)
            if number < rounds:
                since = time.time()
                for seed in range(3):
                    seeds = (client.url, asked, 10 * number + seed)
                    threading.Thread(target=_load, args=seeds, daemon=True).start()
                time.sleep(choose.uniform(0.3, 4.0))
                if server.process_id is None:
                    raise SystemExit("the server ended by itself")
                os.killpg(server.process_id, signal.SIGKILL)
        report["rounds_with_stores"] += number < rounds and any_newer(path, since)
        report["half_written_left"] += count_temporaries(path)
        report["torn_in_place"] += count_torn(path)
        report["most_bytes"] = max(report["most_bytes"], disk_bytes(path))
        print(json.dumps({"round": number, **report}), file=sys.stderr, flush=True)
    return {"rounds": rounds, **report, "max_bytes": nvme.max_bytes}


def check_answers(
    client: Client,
    asked: Sequence[Sequence[int]],
    cold: Sequence[Answer],
    chosen: Sequence[int],
    report: dict[str, Any],
) -> None:
    """Ask some prompts again, and count into the report what came back."""
    again = [client.ask(asked[index]) for index in chosen]
    same = compare([cold[index] for index in chosen], again)
    report["compared"] += len(again)
    report["with_hits"] += sum(answer.cached > 0 for answer in again)
    report["different"] += same["different"]
    report["near_ties"] += same["near tie"]
    client.settle()
    causes = client.tier("misses")
    report["bad_blocks_met"] += causes["checksum"] + causes["foreign"] + causes["unreadable"]


def any_newer(path: Path, since: float) -> bool:
    """Whether a block was written since then, finished or not."""
    files = [*path.rglob("*.kv"), *(path / "temporary").iterdir()]
    return any(file.stat().st_mtime > since for file in files)


def count_torn(path: Path) -> int:
    """Blocks in their place, outside of `temporary`, that are not whole."""
    torn = 0
    for file in path.rglob("*.kv"):
        data = file.read_bytes()
        try:
            header = unpack(data)
        except BadBlockError:
            torn += 1
            continue
        body = data[HEADER_BYTES:]
        torn += len(body) != header.stored_bytes or checksum(body) != header.body_sum
    return torn


def _load(url: str, asked: Sequence[Sequence[int]], seed: int) -> None:
    """Ask for ever, until the server is gone."""
    choose, client = random.Random(seed), Client(url)
    try:
        while True:
            fresh = prompts(1, TOKENS, seed=choose.randrange(10**9))[0]
            client.ask(choose.choice([fresh, choose.choice(asked)]), 1)
    except httpx.HTTPError:
        return


PARTS = ("damage", "control", "denied", "stock", "kills", "server-kills")


NEVER_AFTER_KILLS = (
    "different", "bad_blocks_met", "half_written_after_start", "torn_in_place", "wrong_totals",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=96)
    parser.add_argument("--control", type=int, default=60)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--server-kills", type=int, default=20)
    parser.add_argument("--parts", default=",".join(PARTS), help="Some of the parts, with commas.")
    options = parser.parse_args()
    parts = set(options.parts.split(","))
    if parts - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="prefixctl-damage-") as name:
        for part, result in run(Path(name), parts, options):
            report[part] = result
            print(json.dumps({part: result}), flush=True)
    faults = {fault: number for fault, number in judge(report).items() if number}
    print(json.dumps({"faults": faults}))
    return 1 if faults else 0


def run(
    folder: Path, parts: set[str], options: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The results of the parts, as they come."""
    folder.chmod(0o711)  # the unprivileged child must pass
    if "denied" in parts:
        yield "denied", check_denied(folder / "denied")
    if "kills" in parts:
        yield "kills", kill_rounds(folder / "kills", options.kills)
        yield "shared", share(folder / "shared", 3, 5.0)
    if not parts & {"damage", "control", "stock", "server-kills"}:
        return
    model = make_model(folder / "model")
    asked = prompts(options.prompts, TOKENS)
    if parts & {"damage", "control"}:
        tier = folder / "tier"
        nvme = NvmeSettings(path=str(tier), max_bytes=1024 * MIB)
        settings = TierSettings(host_bytes=4 * MIB, nvme=nvme)
        with serving(model, folder / "ours.log", device_blocks=140, tiers=settings) as (client, _):
            if "damage" in parts:
                yield "damage", damaged(client, tier, asked)
            if "control" in parts:
                yield "control", control(client, tier, prompts(options.control, TOKENS, seed=4))
    if "stock" in parts:
        yield "stock", stock(folder, model, asked)
    if "server-kills" in parts:
        yield "server-kills", server_kills(folder, model, options.server_kills)


def judge(report: dict[str, Any]) -> dict[str, int]:
    """What went wrong, counted; a part that was not run has no faults."""
    faults: dict[str, int] = {}
    if damage := report.get("damage"):
        counted, expected = damage["counted_misses"], damage["expected_misses"]
        faults["wrong answers"] = damage["answers"]["different"]
        faults["wrong answers then"] = damage["answers_then"]["different"]
        faults["damaged tokens served"] = damage["cached_tokens_served_of_them"]
        faults["causes not counted"] = sum(counted[c] < n for c, n in expected.items())
    if control := report.get("control"):
        faults["a blind comparison"] = int(control["changed"] < 0.95 * control["prompts"])
    if kills := report.get("server-kills"):
        faults |= {f"after kills: {what}": int(kills[what]) for what in NEVER_AFTER_KILLS}
        faults["after kills: over the bound"] = int(kills["most_bytes"] > kills["max_bytes"])
        faults["after kills: nothing to compare with"] = int(not kills["references_uncached"])
        faults["after kills: no hits"] = int(not kills["with_hits"])
        faults["after kills: nothing was being stored"] = int(
            kills["rounds_with_stores"] < 0.8 * kills["rounds"]
        )
    return faults


if __name__ == "__main__":
    sys.exit(main())
