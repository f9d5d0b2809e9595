"""Real servers with tiers, requests of token ids, and outputs that are compared."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from prefixctl.core.tiering import TierSettings
from prefixctl.demo.run import example_templates, training_texts
from prefixctl.demo.tokenizer import make_tokenizer
from prefixctl.engine.launch import API_SERVER, ServeCommand, Server, free_port
from prefixctl.engine.tiers import connector

BLOCK_TOKENS = 32
NEAR_TIE = 1e-3
NONE = float("-inf")
"""In place of a log-probability that is no number: KV that was damaged can do that."""
SOURCES = ("device", "host", "disk")


@dataclass(frozen=True)
class Answer:
    """One greedy answer: cached prompt tokens, seconds, tokens, the best log-probabilities."""

    cached: int
    ttft_seconds: float
    tokens: tuple[int, ...]
    best: tuple[tuple[float, ...], ...]

    def differs(self, other: Answer) -> str:
        """``equal``, ``near tie`` or ``different``, decided where the two part."""
        if any(NONE in best for best in other.best):
            return "different"
        for at, (one, two) in enumerate(zip(self.tokens, other.tokens, strict=True)):
            if one != two:
                first, second = self.best[at][:2]
                return "near tie" if abs(first - second) <= NEAR_TIE else "different"
        return "equal"


def make_model(folder: Path, size: str = "5m", dtype: str = "float32", seed: int = 0) -> Path:
    """A tokenizer and a random-weight model."""
    with example_templates() as templates:
        make_tokenizer(folder, training_texts(templates))
    command = [sys.executable, "-m", "prefixctl.vllm_plugin.tiny_model", str(folder)]
    command += ["--size", size, "--dtype", dtype, "--seed", str(seed)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def prompts(count: int, tokens: int, seed: int = 0) -> list[list[int]]:
    """Prompts of random tokens that share nothing."""
    choose = random.Random(seed)
    return [[choose.randrange(300, 5000) for _ in range(tokens)] for _ in range(count)]


def _descending(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(sorted((NONE if v is None else v for v in values), reverse=True))


class Client:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=300, trust_env=False)

    def ask(self, prompt: Sequence[int], max_tokens: int = 8, salt: str | None = None) -> Answer:
        """Stream one greedy completion of token ids."""
        body: dict[str, Any] = {
            "model": "m", "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0,
            "logprobs": 2, "stream": True, "stream_options": {"include_usage": True},
            "return_tokens_as_token_ids": True,
        }  # fmt: skip
        body |= {} if salt is None else {"cache_salt": salt}
        started, first = time.perf_counter(), None
        tokens: list[int] = []
        best: list[tuple[float, ...]] = []
        usage: dict[str, Any] = {}
        with self._http.stream("POST", "/v1/completions", json=body) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                first = first or time.perf_counter() - started
                event = json.loads(line.removeprefix("data: "))
                usage = event.get("usage") or usage
                for choice in event.get("choices", []):
                    logprobs = choice.get("logprobs") or {}
                    tokens += [int(t.removeprefix("token_id:")) for t in logprobs.get("tokens", [])]
                    best += [
                        tuple(
                            sorted((NONE if v is None else v for v in top.values()), reverse=True)
                        )
                        for top in logprobs.get("top_logprobs", [])
                    ]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Answer(cached, first or 0.0, tuple(tokens), tuple(best))

    def counters(self, pattern: str) -> dict[str, float]:
        """Series of the metrics page whose name and labels match."""
        found = {}
        for line in self._http.get("/metrics").text.splitlines():
            if not line.startswith("#") and re.search(pattern, line):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def by_source(self) -> dict[str, int]:
        """Cached prompt tokens so far, by the tier that gave them."""
        series = self.counters("prompt_tokens_cached_by_source_total")
        return {
            source: int(sum(v for k, v in series.items() if f'source="{source}"' in k))
            for source in SOURCES
        }

    def tier(self, what: str) -> dict[str, int]:
        """A counter of the NVMe tier by its label, or under an empty name."""
        found = {}
        for name, value in self.counters(
            rf'^prefixctl_tier_{what}(_total)?\{{.*tier="nvme"'
        ).items():
            label = re.search(r'(?:cause|reason)="(\w+)"', name)
            found[label.group(1) if label else ""] = int(value)
        return found

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until no store is under way any more."""
        before, deadline = None, time.monotonic() + seconds
        while time.monotonic() < deadline:
            now = self.tier("stored_blocks")
            self.ask([1] * 8, 1)  # idle engines hand no counters on
            if now == before:
                return
            before = now
            time.sleep(0.3)


@contextmanager
def serving(
    model: Path,
    log: Path,
    *,
    device_blocks: int,
    tiers: TierSettings | None = None,
    further: Sequence[dict[str, Any]] = (),
    extra: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    dtype: str = "float32",
) -> Iterator[tuple[Client, Server]]:
    """A vLLM on this machine's CPU, with tiers or without.

    The type is given: by itself vLLM takes bfloat16 for a float32 model, where rounding alone
    can change an output.
    """
    port = free_port()
    arguments = [sys.executable, "-m", API_SERVER, "--model", str(model), "--host", "127.0.0.1"]
    arguments += ["--port", str(port), "--served-model-name", "m", "--enforce-eager"]
    arguments += ["--dtype", dtype]
    arguments += ["--block-size", str(BLOCK_TOKENS), "--prefix-caching-hash-algo", "sha256_cbor"]
    arguments += ["--max-model-len", "4096", "--enable-prompt-tokens-details"]
    arguments += ["--num-gpu-blocks-override", str(device_blocks), *extra]
    if tiers is not None:
        arguments += ["--kv-transfer-config", json.dumps(connector(tiers, further))]
    command = ServeCommand(
        arguments=tuple(arguments),
        environment={"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1",
                     "VLLM_NO_USAGE_STATS": "1", **(environment or {})},
        port=port,
        block_size=BLOCK_TOKENS,
    )  # fmt: skip
    with Server(command, log=log, environment=os.environ) as server:
        yield Client(server.url), server


def median(values: Sequence[float]) -> float:
    """The middle one."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else float("nan")


def compare(one: Sequence[Answer], two: Sequence[Answer]) -> dict[str, int]:
    """How many answers are equal, part at a near tie, or are different."""
    same = [a.differs(b) for a, b in zip(one, two, strict=True)]
    return {kind: same.count(kind) for kind in ("equal", "near tie", "different")}
