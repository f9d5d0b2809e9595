"""Ten thousand mutations of valid requests: none gets past the salt, none is a crash."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import KEYS, SECRET, Shop
from gateway_mutations import mutate

from prefixctl.core.tenancy import Namespace, NamespaceKind, derive_salt
from prefixctl.core.ticket import read_ticket
from prefixctl.gateway.routes import ROUTES

pytestmark = pytest.mark.slow
COUNT = 10_000


def test_mutations(project: Path) -> None:
    shop = Shop(project)
    choose = random.Random(7)
    namespace = Namespace(kind=NamespaceKind.TENANT, name="acme")
    salt = derive_salt(SECRET, namespace, model="tiny-model", epoch=0)
    routes = [r for r in ROUTES.values() if r.shape is not None]
    statuses: dict[int, int] = {}

    async def one(path: str, body: bytes) -> None:
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        found = []

        async def receive() -> Any:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            found.append(message)

        headers = [(b"content-type", b"application/json"), (b"x-api-key", KEYS["acme"].encode())]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        await shop.app(scope, receive, send)
        status = found[0]["status"]
        statuses[status] = statuses.get(status, 0) + 1
        if status != 200:
            assert json.loads(found[1]["body"])["error"]["message"]

    async def all_of_them() -> None:
        for _ in range(COUNT):
            route = choose.choice(routes)
            reached = len(shop.server.bodies)
            await one(route.path, mutate(choose))
            if len(shop.server.bodies) == reached:
                continue
            seen = shop.server.bodies[-1]
            if not route.salted:
                assert seen.get("cache_salt") is None
                continue
            assert seen["cache_salt"] == salt
            arguments = seen.get("vllm_xargs")
            if isinstance(arguments, dict) and "prefixctl" in arguments:
                assert route.ticket
                assert read_ticket(arguments["prefixctl"], SECRET, salt=salt) is not None
            assert "kv_transfer_params" not in seen

    asyncio.run(all_of_them())
    assert sum(statuses.values()) == COUNT
    assert statuses[200] > COUNT / 5
    assert set(statuses) <= {200, 400, 403, 404, 409, 422}
