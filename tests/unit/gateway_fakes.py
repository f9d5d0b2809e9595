"""A server double behind the gateway, and a site to put it behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from prefixctl.api.versions import bump_prompts, publish_prompts
from prefixctl.config import Config, load_config
from prefixctl.core.tenancy import Secret
from prefixctl.gateway.groups import Groups
from prefixctl.gateway.identity import Identifier
from prefixctl.gateway.keys import KeyRing, StoredKey, digest_key
from prefixctl.gateway.ledger import Ledger
from prefixctl.gateway.live import LivePrefixes
from prefixctl.gateway.namespaces import Namespaces
from prefixctl.gateway.record import Record
from prefixctl.vllm_plugin.gateway_call import GatewayApp, Site
from prefixctl.vllm_plugin.gateway_registry import RegistrySource

SECRET = Secret(b"a-secret-for-tests-only")
ADMIN = "the-admin-token"
KEYS = {"acme": "pfx-acme", "bolt": "pfx-bolt", "core": "pfx-core"}
GATEWAY = """\
tenancy:
  groups:
    shop: {tenants: [acme, bolt], prompts: [support]}
gateway:
  enabled: true
  keys_file: keys
"""
USAGE = {
    "prompt_tokens": 100,
    "total_tokens": 101,
    "completion_tokens": 1,
    "prompt_tokens_details": {"cached_tokens": 64},
}


_PUBLISHED: dict[bytes, dict[str, bytes]] = {}
"""Lock and registry by the templates that they were made of: a bump takes longer than a test."""


def _publish(config: Config) -> None:
    files = sorted(p for p in config.prompts_dir.rglob("*") if p.is_file())
    key = b"".join(p.name.encode() + p.read_bytes() for p in files)
    made = [config.lock_path, config.registry_path]
    if key not in _PUBLISHED:
        bump_prompts(config, reason="first", author="test")
        publish_prompts(config, by="test")
        _PUBLISHED[key] = {p.name: p.read_bytes() for p in made}
    for path in made:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_PUBLISHED[key][path.name])


class FakeServer:
    """A double of vLLM's server: keeps what reached it, and answers in vLLM's shapes."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.bodies: list[Any] = []
        self.status = 200
        self.error = ""
        self.pause: asyncio.Event | None = None
        self.disconnected = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        data = b""
        while True:
            message = await receive()
            data += message.get("body", b"")
            if not message.get("more_body"):
                break
        body = json.loads(data) if data else None
        self.bodies.append(body)
        if self.pause is not None:
            self.disconnected = (await receive())["type"] == "http.disconnect"
            return
        streams = isinstance(body, dict) and body.get("stream") is True
        kind = b"text/event-stream; charset=utf-8" if streams else b"application/json"
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [(b"content-type", kind)],
            }
        )
        if self.error:
            quoted = self.error + json.dumps(body)
            await send({"type": "http.response.body", "body": quoted.encode()})
        elif streams:
            await self._stream(body, send)
        else:
            answer = {"choices": [{"text": "ok"}], "usage": USAGE}
            data = json.dumps(answer, separators=(",", ":")).encode()
            await send({"type": "http.response.body", "body": data})

    async def _stream(self, body: Any, send: Any) -> None:
        events = [{"choices": [{"delta": {"content": word}}]} for word in ("a", "b")]
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            events.append({"choices": [], "usage": USAGE})
        for event in events:
            line = "data: " + json.dumps(event, separators=(",", ":")) + "\n\n"
            await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @property
    def body(self) -> Any:
        """The last body."""
        return self.bodies[-1]

    def header(self, name: str) -> str | None:
        """A header of the last request."""
        found = dict(self.scopes[-1]["headers"]).get(name.encode())
        return None if found is None else found.decode()


class Shop:
    """A gateway over a published project, with a server double behind it."""

    def __init__(self, project: Path, settings: str = GATEWAY) -> None:
        file = project / "prefixctl.yaml"
        if "gateway:" not in file.read_text():
            file.write_text(file.read_text() + settings)
            lines = [StoredKey(tenant=t, digest=digest_key(k)).line() for t, k in KEYS.items()]
            (project / "keys").write_text("\n".join(lines) + "\n")
        self.project = project
        self.config: Config = load_config(file)
        if not self.config.registry_path.exists():
            _publish(self.config)
        self.records: list[Record] = []
        self.server = FakeServer()
        groups = Groups(self.config.tenancy.groups)
        keys_file = self.config.gateway.keys_file
        keys = None if keys_file is None else KeyRing(self.config.root / keys_file)
        self.site = Site(
            gateway=self.config.gateway,
            groups=groups,
            identifier=Identifier(self.config.gateway, groups, keys=keys, admin_token=ADMIN),
            keys=keys,
            namespaces=Namespaces(SECRET, model="tiny-model", epoch=0),
            prefixes=LivePrefixes(RegistrySource(self.config, "tiny")),
            ledger=Ledger(self.config.registry_path.with_name("gateway-rates")),
            account=self.records.append,
            block_tokens=16,
        )
        self.gateway = GatewayApp(self.server, self.site)
        self.tool_parser = True

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """The gateway inside an application with vLLM's state."""
        args = SimpleNamespace(enable_auto_tool_choice=self.tool_parser)
        app = SimpleNamespace(state=SimpleNamespace(args=args))
        await self.gateway({**scope, "app": app}, receive, send)

    def client(self, address: str = "10.0.0.9") -> httpx.AsyncClient:
        """A client of the gateway, from an address."""
        transport = httpx.ASGITransport(app=self.app, client=(address, 1234))
        return httpx.AsyncClient(transport=transport, base_url="http://gateway")

    def post(
        self,
        path: str = "/v1/chat/completions",
        body: Any = None,
        *,
        tenant: str | None = "acme",
        headers: dict[str, str] | None = None,
        address: str = "10.0.0.9",
        content: bytes | None = None,
        method: str = "POST",
    ) -> httpx.Response:
        """One request."""
        sent = {"content-type": "application/json"} | (headers or {})
        if tenant is not None:
            sent.setdefault("authorization", f"Bearer {KEYS.get(tenant, tenant)}")
        if content is None and method == "POST":
            default = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            content = json.dumps(default if body is None else body).encode()

        async def call() -> httpx.Response:
            async with self.client(address) as client:
                return await client.request(method, path, content=content, headers=sent)

        return run(call)


def run(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(make())
