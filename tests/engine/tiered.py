"""Real servers with host memory and a disk tier, and requests whose answers are compared."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prefixctl.api.serve import build_serve_command
from prefixctl.config import Config, NvmeConfig, TiersConfig, load_config
from prefixctl.core.ports import ChatRequest, Completion
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.engine.http import HttpEngine
from prefixctl.engine.launch import Server, free_port

NEAR_TIE = 1e-3
TOKEN = "a-token-for-tests-only"
BLOCK = 32
WORDS = [
    "parcel",
    "refund",
    "invoice",
    "clerk",
    "harbour",
    "window",
    "letter",
    "tariff",
    "garden",
    "ledger",
]
PROJECT = """\
prompts: templates
targets:
  tiered:
    model: model
    dtype: float32
    block_size: 32
    servers: ["{url}"]
"""


def request_of(seed: int, words: int) -> ChatRequest:
    choose = random.Random(seed)
    text = " ".join(choose.choice(WORDS) for _ in range(words))
    return ChatRequest(messages=({"role": "user", "content": f"{seed} {text}"},))


def differs(one: Completion, two: Completion) -> bool:
    """Whether outputs part elsewhere than at a near tie."""
    for at, (a, b) in enumerate(zip(one.token_ids, two.token_ids, strict=True)):
        if a != b:
            best = sorted(one.logprobs[at].values(), reverse=True)
            return best[0] - best[1] > NEAR_TIE
    return False


@contextmanager
def tiered(config: Config, log: Path) -> Iterator[tuple[HttpEngine, Server]]:
    port = free_port()
    command = build_serve_command(config, None, target="tiered", port=port)
    environment = {**os.environ, ADMIN_TOKEN: TOKEN}
    started = Server(command, log=log, environment=environment)
    with started as server, HttpEngine(server.url) as http:
        yield http, server


def kill(server: Server) -> None:
    """As a crash would."""
    os.killpg(server.process_id, signal.SIGKILL)


def tiers_of(model_folder: Path, tmp_path: Path, **server) -> Config:
    path = model_folder / "tiered.yaml"
    path.write_text(PROJECT.format(url="http://127.0.0.1:1"))
    config = load_config(path)
    settings = {
        "max_model_len": 2048, "kv_cache_gib": 1,
        "extra_args": ("--enforce-eager", "--num-gpu-blocks-override", "100"),
    }  # fmt: skip
    nvme = NvmeConfig(path=tmp_path / "tier", gib=0.25)
    return config.model_copy(
        update={
            "server": config.server.model_copy(update=settings | server),
            # Smaller than what is asked for, so that requests come down to the disk.
            "tiers": TiersConfig(host_gib=0.005, nvme=nvme),
        }
    )


def ask_all(engine: HttpEngine, requests: list[ChatRequest]) -> list[Completion]:
    return [engine.complete_tokens(request, max_tokens=6) for request in requests]


def wait_for_files(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(list(folder.rglob("*.kv"))) < count:
        assert time.monotonic() < deadline, "blocks were not stored"
        time.sleep(0.1)


def whole(completions: list[Completion]) -> bool:
    """Whether each request hit all its full blocks."""
    return all(
        c.use.cached_tokens == (c.use.prompt_tokens - 1) // BLOCK * BLOCK for c in completions
    )


def counted(engine: HttpEngine, series: str, label: str = "", tier: str = "nvme") -> float:
    """A series of a tier on the server's metrics page, summed over its other labels."""
    found = re.findall(
        rf'^prefixctl_tier_{series}(?:_total)?{{.*{label}.*tier="{tier}".*}} (\S+)$',
        engine.metrics_page(),
        re.MULTILINE,
    )
    return sum(float(value) for value in found)


def wait_until(true: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
