"""Warm and probe against servers behind their gateway: an operator's token, and no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_fakes import ADMIN, Shop

from prefixctl.api.audit import audit_probe
from prefixctl.api.warm import warm_prefixes
from prefixctl.core.ports import ChatRequest
from prefixctl.engine.admin import ADMIN_TOKEN
from prefixctl.engine.http import HttpEngine
from prefixctl.errors import ConfigError, ServerError, UsageError
from prefixctl.ids import OnBehalf, Salt

REQUEST = ChatRequest(messages=({"role": "user", "content": "hi"},))


@pytest.fixture
def shop(project: Path) -> Shop:
    return Shop(project)


def engine_before(seen: list[httpx.Request], status: int = 200) -> HttpEngine:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}}
        return httpx.Response(status, text=f"data: {json.dumps({'usage': usage})}\n")

    transport = httpx.MockTransport(answer)
    return HttpEngine("http://server", model="m", api_key=ADMIN, transport=transport)


def test_a_namespace_is_said_in_a_header_and_not_as_a_salt() -> None:
    seen: list[httpx.Request] = []
    with engine_before(seen) as engine:
        engine.complete(REQUEST, salt=OnBehalf("group:shop"), rank=1)
        engine.complete(REQUEST, salt=Salt("a-salt"))
    first, second = seen
    assert first.headers["x-prefixctl-on-behalf"] == "group:shop"
    assert first.headers["x-data-parallel-rank"] == "1"
    assert first.headers["authorization"] == f"Bearer {ADMIN}"
    assert "cache_salt" not in json.loads(first.content)
    assert json.loads(second.content)["cache_salt"] == "a-salt"
    assert "x-prefixctl-on-behalf" not in second.headers


def test_a_refusal_names_the_namespace_as_it_is() -> None:
    with engine_before([], status=404) as engine, pytest.raises(ServerError):
        engine.complete(REQUEST, salt=OnBehalf("group:shop"))


def warm(shop: Shop, environment: dict[str, str], **spaces: Any) -> Any:
    return warm_prefixes(
        shop.config, servers=["http://127.0.0.1:1"], environment=environment, **spaces
    )


def test_warm_asks_for_the_token_and_for_whom(shop: Shop) -> None:
    with pytest.raises(UsageError, match="for whom"):
        warm(shop, {ADMIN_TOKEN: ADMIN})
    with pytest.raises(ConfigError, match="operator's token"):
        warm(shop, {}, groups=["shop"])


def test_probe_asks_for_the_token(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="operator's token"):
        audit_probe(shop.config, ["http://127.0.0.1:1"], environment={})
