"""The gateway in front of a server double: who is let in, with which salt, and what is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import ADMIN, GATEWAY, KEYS, SECRET, USAGE, Shop, run

from prefixctl.core.tenancy import Namespace, NamespaceKind, derive_salt, pseudonym
from prefixctl.core.ticket import read_ticket
from prefixctl.core.usage import CacheState
from prefixctl.gateway.identity import Identifier
from prefixctl.gateway.keys import StoredKey, digest_key
from prefixctl.gateway.refusal import Reason
from prefixctl.gateway.routes import ROUTES, Access, Shape
from prefixctl.vllm_plugin.gateway_call import GatewayApp

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
MEDIA = {"type": "image_url", "image_url": {"url": "data:,"}, "uuid": "theirs"}
OPERATOR = {"authorization": f"Bearer {ADMIN}"}


@pytest.fixture
def shop(project: Path) -> Shop:
    return Shop(project)


def salt(kind: str, name: str) -> str:
    namespace = Namespace(kind=NamespaceKind(kind), name=name)
    return derive_salt(SECRET, namespace, model="tiny-model", epoch=0)


def error(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_a_request_gets_its_tenants_salt_and_a_ticket_of_its_group(shop: Shop) -> None:
    assert shop.post().status_code == 200
    body = shop.server.body
    assert body["cache_salt"] == salt("tenant", "acme")
    ticket = read_ticket(body["vllm_xargs"]["prefixctl"], SECRET, salt=body["cache_salt"])
    assert ticket is not None
    assert ticket.group_salt == salt("group", "shop")
    assert ticket.tenant == pseudonym(SECRET, "acme")
    assert ticket.prefix == ""
    assert body["messages"] == MESSAGES


def test_a_tenant_without_a_group_is_one_of_its_own(shop: Shop) -> None:
    shop.post(tenant="core")
    body = shop.server.body
    ticket = read_ticket(body["vllm_xargs"]["prefixctl"], SECRET, salt=body["cache_salt"])
    assert ticket is not None
    assert ticket.group_salt == ticket.salt == salt("tenant", "core")


@pytest.mark.parametrize("path", [p for p, r in ROUTES.items() if r.salted])
def test_every_route_to_the_engine_is_salted(path: str, shop: Shop) -> None:
    headers = {**OPERATOR, "x-prefixctl-on-behalf": "tenant:acme"}
    body = {"model": "m", "input": "x", "cache_salt": "mine", "sampling_params": {}}
    assert shop.post(path, body, headers=headers).status_code == 200
    assert shop.server.body["cache_salt"] == salt("tenant", "acme")
    arguments = shop.server.body.get("vllm_xargs") or shop.server.body["sampling_params"].get(
        "extra_args", {}
    )
    assert ("prefixctl" in arguments) == ROUTES[path].ticket


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/audio/transcriptions", 404),
        ("/v1/responses/resp_1", 404),
        ("/v1/responses/resp_1/cancel", 404),
        ("/update_weights", 404),
        ("/cohere/v2/chat", 404),
        ("/v1/chat/completions/", 404),
        ("//v1/chat/completions", 404),
        ("/V1/chat/completions", 404),
        ("/inference/v1/generate", 403),
        ("/reset_prefix_cache", 403),
        ("/collective_rpc", 403),
    ],
)
def test_other_routes_are_refused(path: str, status: int, shop: Shop) -> None:
    response = shop.post(path)
    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert shop.server.scopes == []
    assert shop.records[-1].reason in {Reason.ROUTE, Reason.NOT_OPERATOR}


def test_a_websocket_is_refused(shop: Shop) -> None:
    sent: list[Any] = []

    async def call() -> None:
        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await shop.app({"type": "websocket", "path": "/v1/realtime"}, receive, send)

    run(call)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert shop.server.scopes == []


def test_a_root_path_is_taken_off_as_the_router_does(shop: Shop) -> None:
    async def call() -> int:
        statuses: list[int] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b'{"messages":[]}', "more_body": False}

        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        scope = {
            "type": "http", "method": "POST", "path": f"/api{CHAT}", "root_path": "/api",
            "client": ("10.0.0.9", 1),
            "headers": [(b"content-type", b"application/json"),
                        (b"authorization", f"Bearer {KEYS['acme']}".encode())],
        }  # fmt: skip
        await shop.app(scope, receive, send)
        return statuses[0]

    assert run(call) == 200
    assert shop.server.body["cache_salt"] == salt("tenant", "acme")


@pytest.mark.parametrize(
    ("path", "headers", "address", "status"),
    [
        ("/health", {}, "10.0.0.9", 200),
        ("/version", {}, "10.0.0.9", 200),
        ("/prefixctl/state", {}, "10.0.0.9", 200),
        ("/metrics", {}, "10.0.0.9", 403),
        ("/metrics", {}, "127.0.0.1", 200),
        ("/metrics", {}, "::ffff:127.0.0.1", 200),
        ("/metrics", {"x-forwarded-for": "10.0.0.1"}, "127.0.0.1", 403),
        ("/metrics", {"x-real-ip": "10.0.0.1"}, "127.0.0.1", 403),
        ("/metrics", {"x-forwarded-proto": "https"}, "127.0.0.1", 403),
        ("/metrics", {"via": "1.1 proxy"}, "127.0.0.1", 403),
        ("/metrics", OPERATOR, "10.0.0.9", 200),
        ("/v1/models", {}, "10.0.0.9", 401),
        ("/v1/models", {"x-api-key": KEYS["acme"]}, "10.0.0.9", 200),
        ("/v1/models", OPERATOR, "10.0.0.9", 200),
        ("/server_info", {"x-api-key": KEYS["acme"]}, "10.0.0.9", 403),
        ("/server_info", OPERATOR, "10.0.0.9", 200),
    ],
)
def test_routes_that_do_not_reach_the_engine(
    path: str, headers: dict[str, str], address: str, status: int, shop: Shop
) -> None:
    response = shop.post(path, method="GET", tenant=None, headers=headers, address=address)
    assert response.status_code == status


def test_the_admin_routes_get_the_token_that_they_check_themselves(shop: Shop) -> None:
    shop.post("/prefixctl/state", method="GET", tenant=None, headers=OPERATOR)
    assert shop.server.header("authorization") == f"Bearer {ADMIN}"


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
def test_an_api_key_comes_in_either_header_and_goes_no_further(header: str, shop: Shop) -> None:
    value = f"Bearer {KEYS['bolt']}" if header == "authorization" else KEYS["bolt"]
    assert shop.post(tenant=None, headers={header: value}).status_code == 200
    assert shop.server.body["cache_salt"] == salt("tenant", "bolt")
    assert shop.server.header(header) is None


def test_no_key_and_a_wrong_key_are_refused(shop: Shop) -> None:
    assert error(shop.post(tenant=None)) == (401, "no_tenant")
    assert error(shop.post(tenant="pfx-wrong")) == (401, "unknown_api_key")
    assert shop.server.scopes == []


def test_the_key_file_is_read_again_when_it_changes(shop: Shop) -> None:
    file = shop.project / "keys"
    file.write_text(StoredKey(tenant="dune", digest=digest_key("pfx-dune")).line())
    assert shop.post(tenant="pfx-dune").status_code == 200
    assert shop.server.body["cache_salt"] == salt("tenant", "dune")
    assert error(shop.post(tenant="acme")) == (401, "unknown_api_key")


def test_a_broken_key_file_leaves_the_keys_as_they_were(shop: Shop) -> None:
    (shop.project / "keys").write_text("acme pfx-acme\n")
    assert shop.post(tenant="acme").status_code == 200
    assert shop.site.keys is not None
    assert "no SHA-256" in shop.site.keys.fault
    assert "pfx-acme" not in shop.site.keys.fault


def test_requests_of_nobody_can_have_a_namespace_of_their_own(project: Path) -> None:
    shop = Shop(project, GATEWAY + "  missing_tenant: anonymous\n")
    assert shop.post(tenant=None).status_code == 200
    assert shop.server.body["cache_salt"] == salt("tenant", "anonymous")
    assert error(shop.post(tenant="pfx-wrong")) == (401, "unknown_api_key")


PROXY = """\
gateway:
  enabled: true
  tenant_header: X-Tenant
  proxies: ["10.1.0.0/16", "::1"]
"""


def test_a_proxy_names_the_tenant(project: Path) -> None:
    shop = Shop(project, PROXY)
    for address in ("10.1.2.3", "::1", "::ffff:10.1.2.3"):
        headers = {"x-tenant": "acme", "authorization": "Bearer vllm-key"}
        assert shop.post(tenant=None, headers=headers, address=address).status_code == 200
        assert shop.server.body["cache_salt"] == salt("tenant", "acme")
        assert shop.server.header("x-tenant") is None
        assert shop.server.header("authorization") == "Bearer vllm-key"


@pytest.mark.parametrize(
    ("headers", "address", "expected"),
    [
        ({"x-tenant": "acme"}, "10.2.0.1", (403, "forged_header")),
        ({"x-tenant": "acme", "x-forwarded-for": "10.1.0.1"}, "9.9.9.9", (403, "forged_header")),
        ({"x-tenant": "a/b"}, "10.1.0.1", (401, "no_tenant")),
        ({"x-tenant": "anonymous"}, "10.1.0.1", (401, "no_tenant")),
        ({}, "10.1.0.1", (401, "no_tenant")),
    ],
)
def test_a_tenant_header_is_believed_from_proxies_only(
    headers: dict[str, str], address: str, expected: tuple[int, str], project: Path
) -> None:
    shop = Shop(project, PROXY)
    assert error(shop.post(tenant=None, headers=headers, address=address)) == expected
    assert shop.server.scopes == []


@pytest.mark.parametrize(
    ("behalf", "expected"),
    [("tenant:acme", salt("tenant", "acme")), ("group:shop", salt("group", "shop"))],
)
def test_an_operator_acts_on_behalf_of_others(behalf: str, expected: str, shop: Shop) -> None:
    headers = {**OPERATOR, "x-prefixctl-on-behalf": behalf, "x-data-parallel-rank": "1"}
    assert shop.post(headers=headers).status_code == 200
    body = shop.server.body
    assert body["cache_salt"] == expected
    ticket = read_ticket(body["vllm_xargs"]["prefixctl"], SECRET, salt=body["cache_salt"])
    assert ticket is not None
    assert ticket.group_salt == salt("group", "shop")
    assert shop.server.header("x-data-parallel-rank") == "1"
    assert shop.server.header("x-prefixctl-on-behalf") is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (OPERATOR, (400, "on_behalf")),
        ({**OPERATOR, "x-prefixctl-on-behalf": "acme"}, (400, "on_behalf")),
        ({**OPERATOR, "x-prefixctl-on-behalf": "group:none"}, (404, "on_behalf")),
        ({"x-prefixctl-on-behalf": "tenant:bolt"}, (403, "not_operator")),
    ],
)
def test_nobody_else_does(headers: dict[str, str], expected: tuple[int, str], shop: Shop) -> None:
    assert error(shop.post(headers=headers)) == expected


def test_what_touches_the_cache_is_dropped_and_counted(shop: Shop) -> None:
    body = {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look", "uuid": "t"},
                    {"type": "image_url", "image_url": {"url": "data:,"}, "uuid": "theirs"},
                ],
            }
        ],
        "cache_salt": "mine",
        "kv_transfer_params": {"do_remote_prefill": True},
        "ec_transfer_params": {},
        "request_id": "theirs",
        "session_id": "s",
        "vllm_xargs": {
            "prefixctl": "forged", "kv_cache_report_mode": "full", "KV_transfer_params": "x",
            "my_option": 1, "session_id": "s",
        },
    }  # fmt: skip
    headers = {"x-data-parallel-rank": "1", "x-request-id": "theirs", "x-session-id": "s"}
    shop.post(body=body, headers=headers)
    seen = shop.server.body
    assert seen["cache_salt"] == salt("tenant", "acme")
    assert set(seen["vllm_xargs"]) == {"prefixctl", "my_option", "session_id"}
    assert seen["vllm_xargs"]["prefixctl"] != "forged"
    assert not {"kv_transfer_params", "ec_transfer_params", "request_id"} & set(seen)
    assert "uuid" not in seen["messages"][0]["content"][1]
    own = pseudonym(SECRET, "acme")
    assert seen["session_id"] == seen["vllm_xargs"]["session_id"] == f"{own}-s"
    assert shop.server.header("x-request-id") == f"{own}-theirs"
    assert shop.server.header("x-session-id") == f"{own}-s"
    assert shop.server.header("x-data-parallel-rank") is None
    assert shop.records[-1].dropped == {
        "cache_salt": 1, "kv_transfer_params": 1, "ec_transfer_params": 1, "request_id": 1,
        "vllm_xargs": 3, "media_uuid": 1, "x-data-parallel-rank": 1, "x-request-id": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [[{"content": [MEDIA]}]]},
        {"input": [{"role": "user", "content": [MEDIA]}]},
        {"messages": [{"content": [{"type": "tool_result", "content": [MEDIA]}]}]},
        {"queries": {"content": [MEDIA]}, "documents": [{"content": [MEDIA]}, "text"]},
        {"data_1": "text", "data_2": [{"content": [MEDIA]}]},
        {"query": {"content": [MEDIA]}, "documents": {"content": [MEDIA]}},
    ],
)
def test_no_route_takes_media_by_an_id_of_the_clients(body: Any, shop: Shop) -> None:
    shop.post("/invocations", body)
    assert "theirs" not in json.dumps(shop.server.body)
    assert shop.records[-1].dropped["media_uuid"] >= 1


def test_what_only_looks_like_an_id_of_media_stays(shop: Shop) -> None:
    tools = [{"function": {"name": "f", "parameters": {"properties": {"uuid": {"type": "x"}}}}}]
    call = {"type": "tool_use", "name": "f", "input": {"uuid": "1"}}
    shop.post(body={"messages": [{"role": "assistant", "content": [call]}], "tools": tools})
    assert shop.server.body["tools"] == tools
    assert shop.server.body["messages"][0]["content"] == [call]


def test_further_parameters_can_be_dropped(project: Path) -> None:
    shop = Shop(project, GATEWAY + "  drop_xargs: [my_option]\n")
    shop.post(body={"messages": MESSAGES, "vllm_xargs": {"my_option": 1}})
    assert set(shop.server.body["vllm_xargs"]) == {"prefixctl"}


@pytest.mark.parametrize("field", ["previous_response_id", "background"])
def test_kept_responses_are_refused(field: str, shop: Shop) -> None:
    assert error(shop.post("/v1/responses", {"input": "x", field: "resp_1"})) == (403, "body")


@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [
        (b"{", {}, (400, "body")),
        (b"", {}, (400, "body")),
        (b"[1]", {}, (400, "body")),
        ('{"a": "ü"}'.encode("latin-1"), {}, (400, "body")),
        ('{"a": 1}'.encode("utf-16"), {}, (400, "body")),
        (b'{"a": 1}', {"content-type": "text/plain"}, (415, "body")),
        (b'{"a": 1}', {"content-type": "application/json; charset=utf-16"}, (415, "body")),
        (b'{"a": 1}', {"content-encoding": "gzip"}, (415, "body")),
        (b"[" * 100_000, {}, (400, "body")),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(
    content: bytes, headers: dict[str, str], expected: tuple[int, str], shop: Shop
) -> None:
    assert error(shop.post(content=content, headers=headers)) == expected
    assert shop.server.scopes == []


@pytest.mark.parametrize(
    "content",
    [
        b'{"cache_salt": "a", "messages": [], "cache_salt": "b"}',
        b'{"cache\\u005fsalt": "a", "messages": []}',
        b'{"vllm_xargs": {"prefixctl": "a"}, "messages": [], "vllm_xargs": {"prefixct\\u006c": 1}}',
    ],
)
def test_no_way_of_writing_a_field_gets_past(content: bytes, shop: Shop) -> None:
    assert shop.post(content=content).status_code == 200
    assert shop.server.body["cache_salt"] == salt("tenant", "acme")
    ticket = shop.server.body["vllm_xargs"]["prefixctl"]
    assert read_ticket(ticket, SECRET, salt=salt("tenant", "acme")) is not None


def test_what_a_client_writes_reaches_the_server_as_it_is(shop: Shop) -> None:
    body = {
        "messages": [{"role": "user", "content": "\u0000 ü 谢谢 \U0001f600 \\ \" \n"}],
        "temperature": 0.1, "seed": 2**62, "logit_bias": {"5": -1.5}, "top_p": 1e-7, "x": [None],
        "big": 12345678901234567890123, "n": 1.0,
    }  # fmt: skip
    shop.post(body=body)
    seen = dict(shop.server.body)
    del seen["cache_salt"], seen["vllm_xargs"]
    assert seen == body
    assert isinstance(seen["n"], float)


def test_a_large_body_is_refused_however_it_comes(project: Path) -> None:
    shop = Shop(project, GATEWAY + "  max_body_mb: 0.01\n")
    large = json.dumps({"messages": ["x" * 20_000]}).encode()
    assert error(shop.post(content=large)) == (413, "too_large")

    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 1_000

    async def call() -> Any:
        headers = {"content-type": "application/json", "x-api-key": KEYS["acme"]}
        async with shop.client() as client:
            return await client.post(CHAT, content=chunks(), headers=headers)

    assert error(run(call)) == (413, "too_large")


def test_a_slow_body_times_out(project: Path) -> None:
    shop = Shop(project, GATEWAY + "  body_seconds: 0.05\n")

    async def chunks() -> Any:
        yield b"{"
        await asyncio.sleep(5)
        yield b"}"

    async def call() -> Any:
        headers = {"content-type": "application/json", "x-api-key": KEYS["acme"]}
        async with shop.client() as client:
            return await client.post(CHAT, content=chunks(), headers=headers)

    assert error(run(call)) == (408, "too_slow")


def test_a_client_that_goes_away_reaches_the_server(shop: Shop) -> None:
    shop.server.pause = asyncio.Event()

    async def call() -> None:
        messages = [
            {"type": "http.request", "body": b'{"messages":[]}', "more_body": False},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            raise AssertionError(message)

        headers = [(b"content-type", b"application/json"), (b"x-api-key", KEYS["acme"].encode())]
        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers}
        await shop.app(scope, receive, send)

    run(call)
    assert shop.server.disconnected
    record = shop.records[-1]
    assert (record.complete, record.status, record.state) == (False, None, None)


def test_a_client_that_goes_away_with_half_a_body_is_dropped(shop: Shop) -> None:
    async def call() -> None:
        messages = [
            {"type": "http.request", "body": b'{"mess', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            raise AssertionError(message)

        headers = [(b"content-type", b"application/json"), (b"x-api-key", KEYS["acme"].encode())]
        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers}
        await shop.app(scope, receive, send)

    run(call)
    assert shop.server.scopes == []


def test_a_stream_that_breaks_off_is_counted_as_far_as_it_came(shop: Shop) -> None:
    async def call() -> None:
        sent = []

        async def receive() -> Any:
            body = b'{"messages": [], "stream": true}'
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) == 3:
                raise OSError("gone")

        headers = [(b"content-type", b"application/json"), (b"x-api-key", KEYS["acme"].encode())]
        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers}
        with pytest.raises(OSError, match="gone"):
            await shop.app(scope, receive, send)

    run(call)
    record = shop.records[-1]
    assert not record.complete
    assert record.state is CacheState.UNREPORTED
    assert record.ttft_seconds is not None
    assert json.loads(record.line())["broken_off"]


def test_the_state_comes_from_the_usage_of_the_answer(shop: Shop) -> None:
    shop.post()
    record = shop.records[-1]
    assert record.use is not None
    assert (record.use.prompt_tokens, record.use.cached_tokens) == (100, 64)
    assert record.state is CacheState.PARTIAL  # 96 of 100 tokens are full blocks of 16
    assert record.ttft_seconds is None
    line = json.loads(record.line())
    assert line["state"] == "partial"
    assert line["tenant"] == pseudonym(SECRET, "acme")


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}])
def test_a_stream_shows_its_usage_to_those_who_ask(options: Any, shop: Shop) -> None:
    body = {"messages": MESSAGES, "stream": True}
    if options is not None:
        body["stream_options"] = options
    text = shop.post(body=body).text
    assert text.endswith("data: [DONE]\n\n")
    assert text.count("data: ") == (4 if options and options["include_usage"] else 3)
    assert ('"usage"' in text) == bool(options and options["include_usage"])
    record = shop.records[-1]
    assert record.use is not None
    assert record.use.cached_tokens == USAGE["prompt_tokens_details"]["cached_tokens"]
    assert record.ttft_seconds is not None
    assert record.use.ttft_seconds == record.ttft_seconds


@pytest.mark.parametrize("stream", ["true", "Yes", "1", "on", 1, 1.0])
@pytest.mark.parametrize("options", [None, {"include_usage": "false"}, {"include_usage": 0}])
def test_no_way_of_asking_for_a_stream_hides_its_usage(
    stream: Any, options: Any, shop: Shop
) -> None:
    shop.post(body={"messages": MESSAGES, "stream": stream, "stream_options": options})
    assert shop.server.body["stream_options"]["include_usage"] is True


@pytest.mark.parametrize("stream", [False, "false", 0, "maybe", None, [], 2])
def test_what_is_no_stream_gets_no_options_of_one(stream: Any, shop: Shop) -> None:
    shop.post(body={"messages": MESSAGES, "stream": stream})
    assert "stream_options" not in shop.server.body


def test_a_usage_that_the_client_wrote_itself_is_not_believed(project: Path) -> None:
    """The first events of the Responses API quote the client's tools."""
    quoted = b'{"response":{"tools":[{"parameters":{"usage":{"prompt_tokens":0}}}],"usage":%s}}'
    real = b'{"input_tokens":90,"input_tokens_details":{"cached_tokens":32}}'
    events = [
        b"event: response.created\ndata: " + quoted % b"null" + b"\n\n",
        b"event: response.completed\ndata: " + quoted % real + b"\n\n",
    ]
    settings = GATEWAY + "  rates: {prefill_tokens_per_minute: 1000}\n"

    async def server(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    shop = Shop(project, settings)
    shop.app = GatewayApp(server, shop.site)
    shop.post("/v1/responses", {"input": "x", "stream": True})
    use = shop.records[-1].use
    assert use is not None
    assert (use.prompt_tokens, use.cached_tokens) == (90, 32)
    del events[1]  # broken off before the end
    shop.post("/v1/responses", {"input": "x", "stream": True})
    assert shop.records[-1].use is None


def test_an_error_of_the_server_does_not_show_salt_and_ticket(shop: Shop) -> None:
    shop.server.status, shop.server.error = 400, "bad request: "
    response = shop.post()
    ticket = shop.server.body["vllm_xargs"]["prefixctl"]
    assert response.status_code == 400
    assert shop.server.body["cache_salt"] not in response.text
    assert ticket not in response.text
    assert "bad request" in response.text
    assert shop.records[-1].state is None


def test_no_secret_and_no_text_is_told(shop: Shop) -> None:
    body = {"messages": [{"role": "user", "content": "PRIVATE WORDS"}]}
    shop.post(body=body)
    shop.post(tenant=None)
    shop.post("/v1/PRIVATE WORDS")
    told = "".join(record.line() + repr(record) for record in shop.records) + repr(shop.site)
    seen = shop.server.bodies[0]
    ticket = seen["vllm_xargs"]["prefixctl"]
    secrets = ["PRIVATE", SECRET.reveal().decode(), seen["cache_salt"], KEYS["acme"], ticket]
    assert [secret for secret in secrets if secret in told] == []
    assert "acme" not in "".join(record.line() for record in shop.records)


def test_rates_are_a_tenants_own(project: Path) -> None:
    shop = Shop(
        project,
        GATEWAY + "  rates: {requests_per_minute: 2}\n"
        "  tenant_rates: {bolt: {requests_per_minute: 1}}\n",
    )
    assert [shop.post().status_code for _ in range(3)] == [200, 200, 429]
    assert [shop.post(tenant="bolt").status_code for _ in range(2)] == [200, 429]
    refused = shop.post()
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert error(refused) == (429, "rate")
    headers = {**OPERATOR, "x-prefixctl-on-behalf": "tenant:acme"}
    assert shop.post(headers=headers).status_code == 200
    assert shop.post("/tokenize", {"prompt": "x"}).status_code == 200


def test_prefill_tokens_are_settled_by_what_was_computed(project: Path) -> None:
    shop = Shop(project, GATEWAY + "  rates: {prefill_tokens_per_minute: 100}\n")
    # 36 of 100 tokens were computed each time, whatever the estimate was.
    assert [shop.post().status_code for _ in range(4)] == [200, 200, 200, 429]
    shop.server.status, shop.server.error = 500, "no"
    assert [shop.post(tenant="bolt").status_code for _ in range(9)] == [500] * 9
    long = {"messages": [{"role": "user", "content": "x" * 4_000}]}
    assert error(shop.post(body=long)) == (429, "rate")


def test_the_admin_token_is_read_as_the_admin_routes_read_it(shop: Shop) -> None:
    """The end of a line in a file of secrets is none of the token."""
    known = Identifier(shop.config.gateway, shop.site.groups, keys=None, admin_token=f"{ADMIN}\n")
    assert known.is_operator([(b"authorization", f"Bearer {ADMIN}".encode())])
    assert not Identifier(
        shop.config.gateway, shop.site.groups, keys=None, admin_token=" \n"
    ).is_operator([(b"authorization", b"Bearer ")])


def test_the_messages_api_gets_errors_in_its_own_shape(shop: Shop) -> None:
    answer = shop.post("/v1/messages", tenant=None).json()
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "authentication_error"


def test_get_on_a_route_that_takes_post(shop: Shop) -> None:
    assert error(shop.post(CHAT, method="GET")) == (405, "method")


@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
def test_a_browsers_question_is_let_through_without_what_it_carries(path: str, shop: Shop) -> None:
    answer = shop.post(path, method="OPTIONS", tenant=None, content=b'{"messages": []}')
    assert answer.status_code == 200
    assert shop.server.bodies == [None]
    assert shop.post("/server_info", method="OPTIONS", tenant=None).status_code == 403


def test_every_route_says_what_is_done_with_it() -> None:
    for route in ROUTES.values():
        assert route.shape is None or route.access in {Access.TENANT, Access.OPERATOR}
        assert not route.ticket or route.salted
        assert not route.expands or route.shape in {
            Shape.CHAT, Shape.COMPLETION, Shape.RESPONSE, Shape.MESSAGES
        }  # fmt: skip
