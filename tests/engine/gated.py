"""A real server behind its gateway, started once for the tests of the gateway."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from prefixctl.api.keys import add_tenant_key
from prefixctl.api.serve import build_serve_command
from prefixctl.api.versions import bump_prompts, publish_prompts
from prefixctl.config import Config, load_config
from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import GOVERNED_KINDS, Prompt
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.engine.launch import Server, free_port
from prefixctl.prompts.render import example_values, render

TOKEN = "a-token-for-tests-only"
TARGET = "gated"
PROJECT = """\
prompts: templates
lock: gateway.lock.yaml
registry: {path: gateway/registry.db}
targets:
  gated:
    model: model
    dtype: float32
    block_size: 32
    parameters: {index_name: bulletins-north}
tenancy:
  secret_file: secret
  sharing: "on"
  groups:
    shop:
      tenants: [acme, bolt]
      prompts: &most [support-agent, coding-agent, handbook-rag, kefu-zh]
    all: {tenants: ["*"], prompts: *most}
    few: {tenants: [core]}
gateway: {enabled: true, keys_file: gateway/keys}
server:
  served_model_name: m
  max_model_len: 8192
  kv_cache_gib: 1
  api_server_count: 2
  extra_args:
    - --enforce-eager
    - --enable-auto-tool-choice
    - --tool-call-parser=hermes
    - '--override-generation-config={"max_new_tokens": 16}'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """A server behind its gateway."""

    config: Config
    url: str
    keys: dict[str, str]
    log: Path

    def post(self, path: str, body: Any, tenant: str = "acme", **headers: str) -> httpx.Response:
        sent = {"authorization": f"Bearer {self.keys.get(tenant, tenant)}"} | headers
        return httpx.post(self.url + path, json=body, headers=sent, timeout=120, trust_env=False)

    def chat(self, tenant: str = "acme", **body: Any) -> Any:
        body = {"model": "m", "max_tokens": 1, "temperature": 0, "tool_choice": "none"} | body
        answer = self.post("/v1/chat/completions", body, tenant)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def cached(self, tenant: str, **body: Any) -> int:
        """Cached tokens of a request."""
        found: int = self.chat(tenant, **body)["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    def tokens(self, **body: Any) -> list[int]:
        answer = self.post("/tokenize", {"model": "m", **body})
        assert answer.status_code == 200, answer.text
        found: list[int] = answer.json()["tokens"]
        return found


@contextmanager
def gated_server(model_folder: Path) -> Iterator[Gated]:
    """One server with sharing on, two API processes and a gateway in each."""
    file = model_folder / "gateway.yaml"
    file.write_text(PROJECT)
    config = load_config(file)
    bump_prompts(config, reason="first", author="test")
    publish_prompts(config, by="test")
    keys = {tenant: add_tenant_key(config, tenant) for tenant in ("acme", "bolt", "core", "dune")}
    command = build_serve_command(config, None, target=TARGET, port=free_port())
    log = model_folder / "gateway.log"
    environment = {**os.environ, ADMIN_TOKEN: TOKEN}
    with Server(command, log=log, environment=environment) as server:
        wait_until_shared(server.url)
        yield Gated(config=config, url=server.url, keys=keys, log=log)


def wait_until_shared(url: str, processes: int = 2, seconds: float = 120) -> None:
    """Until every API process has told the engines what is published."""
    in_row, deadline = 0, time.monotonic() + seconds
    while in_row < 8 * processes:
        ready = httpx.get(f"{url}/prefixctl/ready", trust_env=False).status_code == 200
        in_row = in_row + 1 if ready else 0
        assert time.monotonic() < deadline
        time.sleep(0 if ready else 0.3)


def as_body(request: ChatRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": list(request.messages)}
    return body if request.tools is None else body | {"tools": list(request.tools)}


def own_words(prompt: Prompt, values: dict[str, str]) -> list[dict[str, Any]]:
    """What a client writes itself: the sections that are not governed."""
    return [dict(m) for m in render(prompt, values, leave_out=GOVERNED_KINDS).messages]


def values_of(prompt: Prompt, choose: random.Random) -> dict[str, str]:
    """Values of any characters for all parameters of a client."""
    alphabet = "abc XYZ .,:;!?\n\t\"'{}[]<>|/\\%$#@0123456789äß谢问🙂"
    values = example_values(prompt, 0, {"index_name": "bulletins-north"})
    for name in values:
        if prompt.parameters[name].scope.is_dynamic:
            values[name] = "".join(choose.choices(alphabet, k=choose.randrange(1, 60))) + "."
    return values


def client_values(prompt: Prompt, values: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in values.items() if prompt.parameters[n].scope.is_dynamic}
