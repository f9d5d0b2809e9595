"""Publishing and rolling back while requests run: a request sees one version, and none fails."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from gated import Gated

from prefixctl.api.versions import bump_prompts, publish_prompts, rollback_prompt
from prefixctl.gateway.live import CHECK_SECONDS
from prefixctl.registry.publish import Wanted

pytestmark = pytest.mark.vllm
NAME = "kefu-zh"
CHANGES = 100
CLIENTS = 4
WORDS = [{"role": "user", "content": "我的包裹在哪里？"}]


def ask(client: httpx.Client, key: str) -> tuple[str, list[int]]:
    """What the answer says it was given, and the tokens that it was given."""
    body = {"model": "m", "messages": WORDS, "prefix_key": key, "max_tokens": 1,
            "temperature": 0, "tool_choice": "none", "return_token_ids": True}  # fmt: skip
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return answer.headers["x-prefixctl-prefix"], told["prompt_token_ids"]


def test_a_hundred_releases_under_load_mix_no_versions(gated: Gated) -> None:
    system = gated.config.prompts_dir / NAME / "system.md"
    before, choose = system.read_bytes(), random.Random(5)
    over = threading.Event()

    def client(number: int) -> list[tuple[str, str, list[int]]]:
        tenant = ("acme", "bolt")[number % 2]
        headers = {"authorization": f"Bearer {gated.keys[tenant]}"}
        found = []
        with httpx.Client(
            base_url=gated.url, headers=headers, timeout=120, trust_env=False
        ) as http:
            while not over.is_set():
                key = (NAME, NAME, f"{NAME}@1", f"{NAME}@2")[len(found) % 4]
                found.append((key, *ask(http, key)))
        return found

    try:
        system.write_bytes("另一个开头。\n\n".encode() + before)
        bump_prompts(gated.config, [NAME], reason="another beginning", author="test")
        publish_prompts(gated.config, [Wanted(name=NAME, version=2)], by="test")
        rollback_prompt(gated.config, NAME, by="test")
        time.sleep(2 * CHECK_SECONDS)
        with httpx.Client(
            base_url=gated.url,
            headers={"authorization": f"Bearer {gated.keys['acme']}"},
            timeout=120,
            trust_env=False,
        ) as http:
            tokens = dict(ask(http, f"{NAME}@{version}") for version in (1, 2))
        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(client, number) for number in range(CLIENTS)]
            try:
                for _ in range(CHANGES):
                    publish_prompts(gated.config, [Wanted(name=NAME, version=2)], by="test")
                    time.sleep(choose.uniform(0, 1.5 * CHECK_SECONDS))
                    rollback_prompt(gated.config, NAME, by="test")
                    time.sleep(choose.uniform(0, 1.5 * CHECK_SECONDS))
            finally:
                over.set()
            answers = [answer for one in running for answer in one.result()]
        live = Counter(label for key, label, _ in answers if key == NAME)
        assert set(live) == {f"{NAME}@1", f"{NAME}@2"}
        assert min(live.values()) >= CHANGES // 10
        assert {label for key, label, _ in answers if key != label} <= set(live)
        assert all(key in {NAME, label} for key, label, _ in answers)
        assert all(given == tokens[label] for _, label, given in answers)
        assert tokens[f"{NAME}@1"] != tokens[f"{NAME}@2"]
    finally:
        system.write_bytes(before)
