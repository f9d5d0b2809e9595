"""What the gateway adds to a request, against the same server without it.

Usage: python bench/gateway.py [PAIRS]. One real server on the CPU; a middleware of this script
hands a request to the gateway, or past it straight to vLLM when the request says so. Each pair
asks for the same greedy token of the same cached prompt in four ways, in random order: past the
gateway twice (A/A), through it with the full text, and through it by prefix key. 10,000 prefixes
are registered and 1,000 tenants have keys; every pair is another tenant's.
Bars: at most 1 ms added at the median and 3 ms at p99 (1,000 pairs and more; bootstrap intervals
and the A/A difference beside). Then the same without a server: what the gateway's own code takes.
Prints its figures last; exits 1 above a bar whose interval does not reach below it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from prefixctl.api.serve import build_serve_command
from prefixctl.api.versions import bump_prompts, publish_prompts, render_request
from prefixctl.config import Config, load_config
from prefixctl.demo.run import example_templates, training_texts
from prefixctl.demo.tokenizer import make_tokenizer
from prefixctl.engine.launch import GATEWAY, ServeCommand, Server, free_port
from prefixctl.gateway.keys import StoredKey, digest_key
from prefixctl.registry.store import open_store
from prefixctl.registry.store.base import Alias, Release

PAIRS, PREFIXES, TENANTS = 1_000, 10_000, 1_000
WARM_UP = 60
MEDIAN_BAR_MS, P99_BAR_MS = 1.0, 3.0
PROMPT = "support-agent"
PAST = "x-bench-past"
SWITCH = '''
from prefixctl.vllm_plugin.gateway import Gateway


class Switch(Gateway):
    """The gateway, or straight past it."""

    async def __call__(self, scope, receive, send):
        if any(name == b"{past}" for name, _ in scope.get("headers", ())):
            await self._app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)
'''
PROJECT = """\
targets: {bench: {model: model, dtype: float32, block_size: 32}}
tenancy:
  secret_file: secret
  sharing: "on"
  groups: {all: {tenants: ["*"], prompts: [support-agent]}}
gateway:
  enabled: true
  keys_file: keys
  rates: {requests_per_minute: 1000000, prefill_tokens_per_minute: 1000000000}
server:
  served_model_name: m
  max_model_len: 8192
  kv_cache_gib: 1
  extra_args: ["--enforce-eager"]
"""


def key_of(tenant: int) -> str:
    return f"pfx-bench-{tenant}"


def make_project(folder: Path) -> Config:
    """The support prompt published, with thousands of others beside it, and thousands of keys."""
    with example_templates() as source:
        texts = training_texts(source)
        target = folder / "templates" / PROMPT
        target.mkdir(parents=True)
        for file in (source / PROMPT).iterdir():
            (target / file.name).write_bytes(file.read_bytes())
    make_tokenizer(folder / "model", texts)
    make = [sys.executable, "-m", "prefixctl.vllm_plugin.tiny_model", str(folder / "model")]
    subprocess.run([*make, "--size", "5m", "--dtype", "float32"], check=True, capture_output=True)
    (folder / "secret").write_text("a-secret-for-benchmarks")
    keys = [StoredKey(tenant=f"t{n}", digest=digest_key(key_of(n))).line() for n in range(TENANTS)]
    (folder / "keys").write_text("\n".join(keys) + "\n")
    (folder / "prefixctl.yaml").write_text(PROJECT)
    (folder / "bench_switch.py").write_text(SWITCH.format(past=PAST))
    config = load_config(folder / "prefixctl.yaml")
    bump_prompts(config, reason="bench", author="bench")
    publish_prompts(config, by="bench")
    register_copies(config)
    return config


def register_copies(config: Config) -> None:
    """The same version under thousands of names, in one transaction."""
    store = open_store(config)
    first = store.load(PROMPT, Alias.LIVE)  # type: ignore[arg-type]
    store.close()
    names = [f"copy-{n}" for n in range(PREFIXES - 1)]
    with sqlite3.connect(config.registry_path) as db:
        files = db.execute("SELECT path, digest FROM files WHERE prompt = ?", (PROMPT,)).fetchall()
        for name in names:
            release = Release(
                name=name, version=1, id=first.id, record=first.record, files=first.files
            )  # type: ignore[arg-type]
            row = (name, 1, first.id, first.record, release.seal(), "2026-01-01T00:00:00+00:00")
            db.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, NULL)", row)
            db.execute("INSERT INTO serving VALUES (?, 0, 1)", (name,))
            db.executemany(
                "INSERT INTO files VALUES (?, 1, ?, ?)", [(name, path, d) for path, d in files]
            )
    db.close()


def command_of(config: Config) -> ServeCommand:
    made = build_serve_command(config, None, target="bench", port=free_port())
    arguments = tuple("bench_switch.Switch" if a == GATEWAY else a for a in made.arguments)
    path = os.pathsep.join(filter(None, (str(config.root), os.environ.get("PYTHONPATH"))))
    return ServeCommand(
        arguments=arguments,
        environment={**made.environment, "PYTHONPATH": path},
        host=made.host,
        port=made.port,
        block_size=made.block_size,
    )


def requests(config: Config) -> dict[str, dict[str, Any]]:
    """One question in full text and by key; so short that no full block of it is the tenant's."""
    values = {"question": "?", "customer": "?", "local_time": "?"}
    full = render_request(config, PROMPT, "live", values=values)
    words = {"role": "user", "content": "Where is it?"}
    base = {"model": "m", "max_tokens": 1, "temperature": 0, "tool_choice": "none"}
    return {
        "full text": base
        | {"messages": [*full.messages[:-1], words], "tools": list(full.tools or ())},
        "by key": base | {"messages": [words], "prefix_key": PROMPT},
    }


def measure(url: str, config: Config, pairs: int) -> dict[str, list[float]]:
    """Milliseconds of each way, pair by pair; all of them find the same tokens cached."""
    bodies = requests(config)
    bodies |= {"past": bodies["full text"], "past again": bodies["full text"]}
    found: dict[str, list[float]] = {way: [] for way in bodies}
    order, ways = random.Random(1), list(bodies)
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
        for number in range(-WARM_UP, pairs):
            order.shuffle(ways)
            cached = set()
            for way in ways:
                headers = {"content-type": "application/json"}
                headers |= {PAST: "1"} if "past" in way else {"x-api-key": key_of(number % TENANTS)}
                data = json.dumps(bodies[way]).encode()
                started = time.perf_counter()
                answer = client.post("/v1/chat/completions", content=data, headers=headers)
                seconds = time.perf_counter() - started
                assert answer.status_code == 200, answer.text
                cached.add(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
                if number >= 0:
                    found[way].append(seconds * 1000)
            assert number < 0 or len(cached) == 1, f"sharing does not work: {cached}"
    return found


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def interval(
    with_it: Sequence[float],
    without: Sequence[float],
    statistic: Callable[[Sequence[float], Sequence[float]], float],
    rounds: int = 1_000,
) -> list[float]:
    """The 95 % bootstrap interval of a statistic over pairs."""
    choose, count = random.Random(2), len(with_it)
    found = []
    for _ in range(rounds):
        picked = choose.choices(range(count), k=count)
        found.append(statistic([with_it[i] for i in picked], [without[i] for i in picked]))
    return [round(percentile(found, share), 3) for share in (0.025, 0.975)]


def median_added(with_it: Sequence[float], without: Sequence[float]) -> float:
    return statistics.median(a - b for a, b in zip(with_it, without, strict=True))


def p99_added(with_it: Sequence[float], without: Sequence[float]) -> float:
    return percentile(with_it, 0.99) - percentile(without, 0.99)


def figures(found: dict[str, list[float]]) -> dict[str, Any]:
    """Added milliseconds of each way against the first."""
    without = found["past"]
    told: dict[str, Any] = {"pairs": len(without), "past_p50_ms": statistics.median(without)}
    for way in ("past again", "full text", "by key"):
        times = found[way]
        told[way] = {
            "median_added_ms": round(median_added(times, without), 3),
            "median_interval_ms": interval(times, without, median_added),
            "p99_added_ms": round(p99_added(times, without), 3),
            "p99_interval_ms": interval(times, without, p99_added),
        }
    return told


async def own_code(folder: Path, config: Config, calls: int = 2_000) -> dict[str, float]:
    """Microseconds of the gateway's code alone, in front of an application that does nothing."""
    os.environ |= command_of(config).environment
    sys.path.insert(0, str(folder))
    from prefixctl.vllm_plugin import routes  # noqa: PLC0415 - the engine's packages

    routes.attached = True
    from prefixctl.vllm_plugin.gateway import Gateway  # noqa: PLC0415

    async def nothing(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"usage":{"prompt_tokens":9}}'})

    async def send(_message: Any) -> None:
        return

    gateway = Gateway(nothing)
    told = {}
    for way, body in requests(config).items():
        data, times = json.dumps(body).encode(), []
        for number in range(calls):
            key = key_of(number % TENANTS).encode()
            headers = [(b"content-type", b"application/json"), (b"x-api-key", key)]
            messages = [{"type": "http.request", "body": data, "more_body": False}]

            async def receive(left: list[Any] = messages) -> Any:
                return left.pop()

            scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}
            started = time.perf_counter()
            await gateway(scope | {"headers": headers}, receive, send)
            times.append((time.perf_counter() - started) * 1e6)
        told[way] = round(statistics.median(times[calls // 4 :]), 1)
    return told


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = make_project(folder)
        with Server(command_of(config), log=folder / "log", environment=os.environ) as server:
            told = figures(measure(server.url, config, pairs))
        told["own_code_median_us"] = asyncio.run(own_code(folder, config))
    print(json.dumps(told | {"median_bar_ms": MEDIAN_BAR_MS, "p99_bar_ms": P99_BAR_MS}, indent=1))
    ways = [told[way] for way in ("full text", "by key")]
    above = [
        way["median_interval_ms"][0] > MEDIAN_BAR_MS or way["p99_interval_ms"][0] > P99_BAR_MS
        for way in ways
    ]
    return int(any(above))


if __name__ == "__main__":
    sys.exit(main())
