"""Real servers for the benchmarks: a small model made on the spot, and requests by token ids."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from prefixctl.config import Config
from prefixctl.demo.run import example_templates, training_texts
from prefixctl.demo.tokenizer import make_tokenizer
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.engine.launch import Server, free_port, serve_command
from prefixctl.errors import PrefixctlError
from prefixctl.vllm_plugin.tiny_model import make_model

BLOCK = 32
VOCABULARY = range(300, 4000)
TOKEN = "a-token-for-benchmarks-only"


@contextmanager
def small_model(*, size: str = "5m", dtype: str = "float32") -> Iterator[Path]:
    """A folder with a model `model`, gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with example_templates() as templates:
            make_tokenizer(folder / "model", training_texts(templates))
        make_model(folder / "model", size=size, dtype=dtype, seed=1)
        yield folder


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One request: cached tokens, time to the first token, the tokens and their best logprobs."""

    cached: int
    seconds: float
    tokens: tuple[int, ...] = ()
    best: tuple[Mapping[str, float], ...] = ()


class Client:
    """Requests of token ids to one server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=300, trust_env=False)
        self.admin = {"Authorization": f"Bearer {TOKEN}"}

    def ask(
        self,
        tokens: Sequence[int],
        *,
        salt: str | None = None,
        logprobs: bool = False,
        max_tokens: int = 1,
    ) -> Answer:
        """A greedy request."""
        body: dict[str, Any] = {
            "model": "model",
            "prompt": list(tokens),
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        if salt is not None:
            body["cache_salt"] = salt
        if logprobs:
            body |= {"logprobs": 2, "return_tokens_as_token_ids": True, "return_token_ids": True}
        started = time.perf_counter()
        response = self.http.post("/v1/completions", json=body)
        seconds = time.perf_counter() - started
        response.raise_for_status()
        data = response.json()
        choice = data["choices"][0]
        return Answer(
            cached=data["usage"]["prompt_tokens_details"]["cached_tokens"],
            seconds=seconds,
            tokens=tuple(choice.get("token_ids") or ()),
            best=tuple((choice.get("logprobs") or {}).get("top_logprobs") or ()),
        )

    def pin(self, name: str, tokens: Sequence[int]) -> dict[str, Any]:
        """Pin a prefix; what the first engine says."""
        body = {"name": name, "token_ids": list(tokens)}
        answer = self.http.post("/prefixctl/pin", json=body, headers=self.admin)
        answer.raise_for_status()
        return answer.json()["engines"][0]

    def unpin(self, name: str) -> None:
        """Let a prefix go."""
        answer = self.http.post("/prefixctl/unpin", json={"name": name}, headers=self.admin)
        answer.raise_for_status()

    def state(self) -> dict[str, Any]:
        """The first engine's state."""
        answer = self.http.get("/prefixctl/state", headers=self.admin)
        answer.raise_for_status()
        return answer.json()["engines"][0]

    def reset(self) -> None:
        """Empty the cache; vLLM must run with VLLM_SERVER_DEV_MODE."""
        self.http.post("/reset_prefix_cache").raise_for_status()


@contextmanager
def serving(
    folder: Path,
    *,
    blocks: int,
    policy: str | None = "lru",
    max_model_len: int = 4096,
    cache: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
) -> Iterator[Client]:
    """A server with a pool of that many blocks; `policy` None serves stock vLLM."""
    name = policy or "stock"
    config = Config.model_validate(
        {
            "prefix_cache": {
                "evict": {"policy": policy or "lru", "ttl_hours": None},
                **(cache or {}),
            },
            "targets": {
                "t": {
                    "model": "model",
                    "dtype": "auto",
                    "block_size": BLOCK,
                    "hash_algorithm": "sha256_cbor",
                }
            },
            "server": {
                "governed": policy is not None,
                "max_model_len": max_model_len,
                "kv_cache_gib": 1,
                "served_model_name": "model",
                "extra_args": ["--enforce-eager", "--num-gpu-blocks-override", str(blocks + 1)],
                "environment": {"VLLM_SERVER_DEV_MODE": "1"},
                **(server or {}),
            },
        }
    ).at(folder)
    command = serve_command(config, "model", target=config.targets["t"], port=free_port())
    environment = {**os.environ, ADMIN_TOKEN: TOKEN}
    log = folder / f"{name}-{command.port}.log"
    running = Server(command, log=log, environment=environment)
    try:
        running.start()
        running.wait_ready(600)
    except PrefixctlError:
        running.stop()
        print(log.read_text()[-4000:], file=sys.stderr)
        raise
    try:
        yield Client(running.url)
    finally:
        running.stop()


def tokens_of(number: int, count: int) -> list[int]:
    """Tokens that are as good as unique to a number."""
    rng = random.Random(number)
    return [rng.choice(VOCABULARY) for _ in range(count)]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the others does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
