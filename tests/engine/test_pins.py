"""Pins, floods and storms on real servers."""

from __future__ import annotations

import asyncio
import random
import re
import time

import httpx
import pytest

from prefixctl.api.pins import (
    Scope,
    engine_states,
    pin_prefixes,
    resident_prefixes,
    unpin_prefixes,
)
from prefixctl.api.warm import warm_prefixes
from prefixctl.engine.admin import ADMIN_TOKEN, AdminClient, GovernedPrefix
from prefixctl.errors import InputError, ServerError, UsageError
from tests.engine.conftest import TOKEN

pytestmark = pytest.mark.vllm
ENVIRONMENT = {ADMIN_TOKEN: TOKEN}
POOL = 120


def tokens(seed, number):
    rng = random.Random(seed)
    return [rng.randrange(300, 3000) for _ in range(number)]


def body(prompt, *, salt=None, max_tokens=1):
    asked = {"model": "model", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    return asked | ({"cache_salt": salt} if salt else {})


class Small:
    """The server with the small pool."""

    def __init__(self, url):
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=120, trust_env=False)
        self.admin = AdminClient(url, TOKEN)

    def cached(self, prompt, **more):
        answer = self.http.post("/v1/completions", json=body(prompt, **more))
        answer.raise_for_status()
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    def flood(self, seed=0, requests=12):
        for number in range(requests):
            self.cached(tokens(1_000_000 + seed * 1000 + number, 800))

    def pin(self, name, prompt, **more):
        return self.admin.pin(GovernedPrefix(name=name, token_ids=tuple(prompt)), **more)[0]

    def blocks(self):
        return self.admin.state()[0].blocks

    def wait_idle(self):
        for _ in range(600):
            if not self.blocks()["in_flight"]:
                return
            time.sleep(0.1)
        raise AssertionError(f"blocks are still in flight: {self.blocks()}")

    def close(self):
        self.http.close()
        self.admin.close()


@pytest.fixture
def small(engine_project):
    server = Small(engine_project.servers.small)
    try:
        yield emptied(server)
    finally:
        server.close()


def emptied(server):
    for pin in server.admin.state()[0].pins:
        server.admin.unpin(pin.name)
    server.http.post("/reset_prefix_cache").raise_for_status()
    assert server.blocks() == {
        "total": POOL, "pinned": 0, "pinned_idle": 0, "in_flight": 0, "cached": 0, "blank": POOL,
    }  # fmt: skip
    return server


def test_a_pinned_prefix_is_computed_at_once_and_survives_a_flood(small):
    prompt = tokens(1, 20 * 32)
    state = small.pin("a@1", prompt)
    assert (state.pinned, state.resident, state.blocks) == (20, 20, 20)
    small.flood()
    assert small.cached([*prompt, 7]) == 640
    assert small.admin.unpin("a@1") == [20]
    small.flood(seed=1)
    assert small.cached([*prompt, 7]) == 0


def test_a_reset_succeeds_with_pins_and_brings_them_back(small):
    prompt = tokens(2, 20 * 32)
    small.pin("a@1", prompt)
    small.http.post("/reset_prefix_cache").raise_for_status()
    for _ in range(100):
        if small.blocks()["pinned"] == 20:
            break
        time.sleep(0.1)
    assert small.cached([*prompt, 7]) == 640


def test_a_reset_with_running_requests_keeps_pins_wished_for(small):
    prompt = tokens(3, 20 * 32)
    small.pin("a@1", prompt)

    async def storm():
        async with httpx.AsyncClient(base_url=small.url, timeout=120, trust_env=False) as client:
            asked = [
                client.post("/v1/completions", json=body(tokens(n, 300), max_tokens=60))
                for n in range(6)
            ]
            running = [asyncio.ensure_future(each) for each in asked]
            await asyncio.sleep(0.5)
            parameters = {"reset_running_requests": "true"}
            reset = await client.post("/reset_prefix_cache", params=parameters)
            return reset.status_code, [
                answer.status_code for answer in await asyncio.gather(*running)
            ]

    assert asyncio.run(storm()) == (200, [200] * 6)
    small.wait_idle()
    small.pin("a@1", prompt)
    assert small.cached([*prompt, 7]) == 640


def test_pins_to_the_cap_starve_nobody(small):
    cap = small.admin.state()[0].pin_cap
    assert cap == 24
    assert small.pin("a@1", tokens(4, cap * 32)).pinned == cap
    refused = small.pin("b@1", tokens(5, 64))
    assert not refused.accepted and "2 more blocks, and 0 of the cap of 24" in refused.reason
    assert small.cached(tokens(6, 1023)) == 0
    assert small.cached(tokens(7, 40)) == 0
    assert small.blocks()["pinned"] == cap


def test_a_storm_of_tenants_leaks_no_block(small):
    """200 parallel requests, some of them cancelled or cut off, while pins come and go."""
    prompt = tokens(8, 20 * 32)
    small.pin("a@1", prompt)
    rng = random.Random(9)

    async def one(client, number):
        salt = rng.choice([None, "tenant-a", "tenant-b"])
        begin = prompt if rng.random() < 0.3 else tokens(rng.randrange(12), rng.randrange(20, 500))
        asked = body([*begin, number], salt=salt, max_tokens=rng.randrange(1, 12))
        await asyncio.sleep(rng.random() * 3)
        if rng.random() < 0.3:
            try:
                await asyncio.wait_for(client.post("/v1/completions", json=asked), rng.random())
            except TimeoutError:
                return "cancelled"
            return "done"
        if rng.random() < 0.3:
            async with client.stream("POST", "/v1/completions", json=asked | {"stream": True}) as s:
                async for _ in s.aiter_bytes():
                    return "cut off"
        answer = await client.post("/v1/completions", json=asked)
        answer.raise_for_status()
        return "done"

    async def storm():
        limits = httpx.Limits(max_connections=300)
        async with httpx.AsyncClient(
            base_url=small.url, timeout=300, trust_env=False, limits=limits
        ) as client:
            return await asyncio.gather(*(one(client, n) for n in range(200)))

    ends = asyncio.run(storm())
    assert {"done", "cancelled", "cut off"} == set(ends)
    small.wait_idle()
    blocks = small.blocks()
    assert blocks["pinned"] == blocks["pinned_idle"] == 20
    assert blocks["cached"] + blocks["blank"] + blocks["pinned"] == POOL
    assert small.cached([*prompt, 7]) == 640
    small.admin.unpin("a@1")
    small.http.post("/reset_prefix_cache").raise_for_status()
    assert small.blocks()["blank"] == POOL


def test_hot_prefixes_are_pinned_by_themselves(small):
    prompt = tokens(10, 20 * 32)
    state = small.pin("a@1", prompt, auto_hits=3)
    assert state.accepted and not state.active
    assert small.cached([*prompt, 1]) == 0
    for number in range(3):
        assert small.cached([*prompt, 2 + number]) == 640
    assert small.blocks()["pinned"] == 20


def test_the_admin_routes_guard_themselves(small):
    for token in ("wrong", TOKEN[:-1]):
        with (
            AdminClient(small.url, token) as client,
            pytest.raises(InputError, match="does not accept the admin token"),
        ):
            client.state()
    assert small.http.get("/prefixctl/state").status_code == 401
    answer = small.http.post(
        "/prefixctl/pin",
        json={"name": "x", "token_ids": ["y"], "colour": 1},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    assert answer.status_code == 400
    too_long = GovernedPrefix(name="long@1", token_ids=tuple(tokens(11, 3000)))
    assert not small.admin.pin(too_long)[0].accepted


def test_a_stock_server_says_that_it_is_not_governed(engine_project):
    with (
        AdminClient(engine_project.servers.uncached, TOKEN) as client,
        pytest.raises(ServerError, match="is not governed"),
    ):
        client.state()


def events_of(url, name):
    page = httpx.get(f"{url}/metrics", trust_env=False).text
    return {
        match[1]: float(match[2])
        for match in re.finditer(rf"^{name}{{(.*?)}} (\S+)$", page, re.MULTILINE)
    }


def test_pins_reach_every_rank_through_every_api_process(engine_project):
    """Two data-parallel engines, two API processes: pins, residency and metrics cover all."""
    config = engine_project.config
    scope = Scope(target="ranks")
    asked = {"scope": scope, "environment": ENVIRONMENT}
    states = pin_prefixes(config, ["handbook-rag"], **asked)
    assert [(s.rank, s.pinned == s.blocks > 0) for s in states] == [(0, True), (1, True)]
    # Whichever process answers, it is the same.
    for _ in range(6):
        found = resident_prefixes(config, ["handbook-rag"], **asked)
        assert [s.resident == s.blocks for s in found] == [True, True]
        assert [len(s.pins) for s in engine_states(config, **asked)] == [1, 1]
    warm_prefixes(config, ["handbook-rag"], target="ranks", environment={})
    hits = [s.hits for s in pin_prefixes(config, ["handbook-rag"], **asked)]
    assert min(hits) >= 1
    url = engine_project.servers.ranks
    for _ in range(80):
        shown = events_of(url, "prefixctl_prefix_hits_total")
        if len(shown) == 2 and sorted(shown.values()) == sorted(map(float, hits)):
            break
        time.sleep(0.1)
    assert sorted(shown.values()) == sorted(map(float, hits)), "each event is counted once"
    pinned = events_of(url, "prefixctl_blocks")
    assert sum(v for k, v in pinned.items() if 'state="pinned"' in k) == 2 * states[0].blocks
    with pytest.raises(UsageError, match="'handbook' is not pinned"):
        unpin_prefixes(config, ["handbook"], **asked)
    gone = unpin_prefixes(config, ["handbook-rag"], **asked)
    assert [each.blocks for each in gone] == [(states[0].blocks,) * 2]


def test_counted_evictions_add_up(small):
    small.flood(seed=5, requests=8)
    counted = {
        (name, *labels): value for name, *labels, value in small.admin.state()[0].raw["counters"]
    }
    assert counted["evictions", "capacity"] > 0
    for _ in range(80):
        shown = events_of(small.url, "prefixctl_evictions_total")
        found = {k: v for k, v in shown.items() if 'reason="capacity"' in k}
        if list(found.values()) == [counted["evictions", "capacity"]]:
            return
        time.sleep(0.1)
    raise AssertionError(f"{found} is not {counted}")
