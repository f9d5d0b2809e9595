"""The gateway as an ASGI application around another one. It needs neither vLLM nor FastAPI."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from prefixctl.config import GatewayConfig, RateConfig
from prefixctl.errors import UnreachableError
from prefixctl.gateway.body import (
    apply_seal,
    clean,
    rename_session,
    request_usage,
    stored_field,
)
from prefixctl.gateway.groups import Groups
from prefixctl.gateway.headers import forward
from prefixctl.gateway.identity import Caller, Identifier, is_this_host
from prefixctl.gateway.keys import KeyRing
from prefixctl.gateway.ledger import Ledger
from prefixctl.gateway.live import LivePrefixes
from prefixctl.gateway.namespaces import Namespaces, Seal
from prefixctl.gateway.place import decline_tools, place, sends_words, shape_of
from prefixctl.gateway.prefix import KEY_FIELD, PARAMETERS_FIELD, Prefix, parse_reference
from prefixctl.gateway.rates import retry_after
from prefixctl.gateway.record import Record
from prefixctl.gateway.refusal import Reason, RefusedError
from prefixctl.gateway.routes import Access, Route, Shape, find_route
from prefixctl.vllm_plugin.gateway_answer import Answer
from prefixctl.vllm_plugin.gateway_intake import (
    GoneError,
    Message,
    Receive,
    Replay,
    Scope,
    check_type,
    parse_body,
    read_body,
)

Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("vllm.prefixctl.gateway")
BYTES_PER_TOKEN = 4
"""For the estimate of a request's prefill tokens before the engine has counted them."""
_POLICY_VIOLATION = 1008


@dataclass(frozen=True, kw_only=True)
class Site:
    """All that the gateway of one API process works with.

    Attributes:
        gateway: Its settings.
        groups: The share groups.
        identifier: Who a request is from.
        keys: The API keys, to be looked at again; None if there are none.
        namespaces: Salts and tickets.
        prefixes: The published prefixes.
        ledger: The rates.
        account: Told each request when it is over.
        block_tokens: The target's cache unit.
        server_key: The server's own API key; empty if it has none.
        clock: Seconds.
    """

    gateway: GatewayConfig
    groups: Groups
    identifier: Identifier
    keys: KeyRing | None
    namespaces: Namespaces
    prefixes: LivePrefixes
    ledger: Ledger
    account: Callable[[Record], None]
    block_tokens: int
    server_key: str = ""
    clock: Callable[[], float] = time.perf_counter

    def rate(self, caller: Caller) -> RateConfig:
        """The limits of a caller; an operator has none."""
        if caller.operator or caller.namespace is None:
            return _UNLIMITED
        return self.gateway.tenant_rates.get(caller.namespace.name, self.gateway.rates)


_UNLIMITED = RateConfig()


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


class GatewayApp:
    """Hands requests on with their tenant's salt, or says why not."""

    def __init__(self, app: App, site: Site) -> None:
        self._app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            record = Record(path="websocket", reason=Reason.ROUTE, status=403)
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            self._site.account(record)
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = self._site.clock()
        route = find_route(scope["path"], scope.get("root_path", ""))
        record = Record(path="unknown" if route is None else route.path)
        record.block_tokens = self._site.block_tokens
        try:
            if route is None:
                raise _unknown_route()
            if scope["method"] == "OPTIONS" and route.access is Access.TENANT:
                # A browser's question before the request; it carries no key and no body.
                await self._app(scope, _nothing, send)
                return
            if route.shape is None:
                await self._app(self._plain(scope, route, record), receive, send)
                return
            call = await self._prepare(scope, receive, route, record)
        except GoneError:
            return
        except (RefusedError, UnreachableError) as exc:
            record.seconds = self._site.clock() - started
            await self._refuse(send, route, record, _as_refusal(exc))
            return
        answer = Answer(send, record, call.seal, started=started, clock=self._site.clock,
                        strips_usage=call.strips_usage, shape=route.shape)  # fmt: skip
        try:
            await self._app(call.scope, call.receive, answer)
        finally:
            answer.finish()
            try:
                self._settle(call, record)
            except UnreachableError as exc:
                log.warning("prefixctl: %s", exc)
            self._site.account(record)

    def _plain(self, scope: Scope, route: Route, record: Record) -> Scope:
        """The scope for a route whose body is none of the gateway's business."""
        site, headers = self._site, scope["headers"]
        access = route.access
        if access in {Access.OPEN, Access.OWN_GUARD}:
            return scope
        if access is Access.METRICS:
            near = is_this_host(_address(scope)) and not _is_forwarded(scope)
            if near or site.gateway.metrics == "open":
                return scope
        self._look_at_keys()
        if access in {Access.OPERATOR, Access.METRICS}:
            if not site.identifier.is_operator(headers):
                raise RefusedError(403, Reason.NOT_OPERATOR, "this route is for operators")
            caller, name = Caller(namespace=None, operator=True, by_token=True), ""
        else:
            caller = site.identifier.identify(headers, _address(scope))
            name = self._pseudonym(caller)
        kept, dropped = self._forward(scope, caller, name, None)
        record.dropped += dropped
        return {**scope, "headers": kept}

    async def _prepare(self, scope: Scope, receive: Receive, route: Route, record: Record) -> _Call:
        """Everything before the request is handed on."""
        site, began = self._site, self._site.clock()
        caller, rate = self._admit(scope, route, record)
        check_type(scope)
        waiting = site.clock()
        data = await read_body(scope, receive, site.gateway)
        received = site.clock()
        body = parse_body(data)
        spoke_of_tools = body.keys() & {"tools", "tool_choice"}
        seal = await self._rewrite(body, route, caller, record)
        if record.prefix and route.shape and not spoke_of_tools and not _reads_tool_calls(scope):
            decline_tools(body, route.shape)
        strips = request_usage(body, route)
        new = to_json(body)
        added = 0 if seal is None else len(seal.salt) + len(seal.ticket)
        tokens = (len(new) - added) // BYTES_PER_TOKEN if route.counts else 0
        _refuse_early(site.ledger.take_tokens(record.tenant, tokens, rate))
        headers, dropped = self._forward(scope, caller, record.tenant, len(new))
        record.dropped += dropped
        record.own_seconds = site.clock() - began - (received - waiting)
        return _Call(
            scope={**scope, "headers": headers},
            receive=Replay(new, receive),
            seal=seal,
            strips_usage=strips,
            tokens=tokens,
            rate=rate,
        )

    def _admit(self, scope: Scope, route: Route, record: Record) -> tuple[Caller, RateConfig]:
        """Who it is and what they may do, before anything of the body is read."""
        if scope["method"] != "POST":
            raise RefusedError(405, Reason.METHOD, "this route takes POST")
        self._look_at_keys()
        caller = self._caller(scope, route)
        record.operator = caller.operator
        record.tenant = self._pseudonym(caller)
        record.counts = route.counts
        rate = self._site.rate(caller)
        if route.counts:
            _refuse_early(self._site.ledger.take_request(record.tenant, rate))
        return caller, rate

    async def _rewrite(
        self, body: dict[str, Any], route: Route, caller: Caller, record: Record
    ) -> Seal | None:
        """Make the client's body the one that the server gets; what was put in, if anything."""
        site = self._site
        record.dropped = clean(body, operator=caller.operator, drop_xargs=site.gateway.drop_xargs)
        if not caller.operator and (stored := stored_field(body)):
            raise RefusedError(
                403, Reason.BODY, f"`{stored}`: kept responses belong to no tenant", param=stored
            )
        rename_session(body, record.tenant)
        record.prefix = await self._expand(body, route, caller)
        if not route.salted or caller.namespace is None:
            return None
        prefix = "" if record.prefix is None else record.prefix.label
        seal = site.namespaces.seal(caller.namespace, caller.group, prefix)
        apply_seal(body, route, seal)
        return seal

    def _caller(self, scope: Scope, route: Route) -> Caller:
        caller = self._site.identifier.identify(scope["headers"], _address(scope))
        if route.access is Access.OPERATOR and not caller.operator:
            raise RefusedError(403, Reason.NOT_OPERATOR, "this route is for operators")
        if route.salted and caller.namespace is None:
            raise RefusedError(
                400, Reason.ON_BEHALF, "on whose behalf? X-Prefixctl-On-Behalf: tenant:NAME or "
                "group:NAME"
            )  # fmt: skip
        return caller

    def _pseudonym(self, caller: Caller) -> str:
        if caller.namespace is None:
            return "operator"
        return self._site.namespaces.pseudonym(caller.namespace, caller.group)

    def _look_at_keys(self) -> None:
        keys = self._site.keys
        if keys is not None and keys.refresh() and keys.fault:
            log.error("the old API keys stay in use: %s", keys.fault)

    def _forward(
        self, scope: Scope, caller: Caller, name: str, length: int | None
    ) -> tuple[list[tuple[bytes, bytes]], Any]:
        return forward(
            scope["headers"],
            caller=caller,
            pseudonym=name,
            tenant_header=(self._site.gateway.tenant_header or "").lower().encode(),
            server_key=self._site.server_key,
            length=length,
        )

    async def _expand(self, body: dict[str, Any], route: Route, caller: Caller) -> Prefix | None:
        """Put the named prefix in front of the client's words; None if none is named."""
        key, values = body.pop(KEY_FIELD, None), body.pop(PARAMETERS_FIELD, None)
        if key is None:
            if values is not None:
                raise RefusedError(
                    422, Reason.PREFIX_PARAMETERS, f"`{PARAMETERS_FIELD}` without `{KEY_FIELD}`",
                    param=PARAMETERS_FIELD,
                )  # fmt: skip
            return None
        if not route.expands or route.shape is None:
            raise RefusedError(
                422, Reason.PREFIX_PARAMETERS, f"this route takes no `{KEY_FIELD}`", param=KEY_FIELD
            )
        reference = parse_reference(key)
        nobody = caller.namespace is None  # an operator who asks for tokens
        if not nobody and not self._site.groups.may_use(caller.group, reference.name):
            raise RefusedError(
                403, Reason.PREFIX_FORBIDDEN, f"'{reference.name}' is not for this tenant",
                param=KEY_FIELD,
            )  # fmt: skip
        prefix = await self._site.prefixes.find(reference)
        shape = shape_of(body, route.shape)
        whole = not sends_words(body, shape)
        expansion = await self._site.prefixes.expand(prefix, values, whole=whole)
        place(body, shape, expansion)
        return prefix

    def _settle(self, call: _Call, record: Record) -> None:
        """Correct the estimate by what the engine computed; a refused request computed nothing."""
        if not call.tokens:
            return
        used = call.tokens
        if record.status is not None and record.status >= 400:  # noqa: PLR2004 - an error
            used = 0
        elif record.use is not None:
            used = record.use.prompt_tokens - (record.use.cached_tokens or 0)
        self._site.ledger.give_back_tokens(record.tenant, call.tokens - used, call.rate)

    async def _refuse(
        self, send: Send, route: Route | None, record: Record, refusal: RefusedError
    ) -> None:
        record.status, record.reason, record.complete = refusal.status, refusal.reason, True
        body = refusal.body(anthropic=route is not None and route.shape is Shape.MESSAGES)
        headers = [*refusal.headers(), (b"content-length", str(len(body)).encode())]
        try:
            await send(
                {"type": "http.response.start", "status": refusal.status, "headers": headers}
            )
            await send({"type": "http.response.body", "body": body})
        finally:
            self._site.account(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A request that is ready to be handed on."""

    scope: Scope
    receive: Receive
    seal: Seal | None
    strips_usage: bool
    tokens: int
    rate: RateConfig


def _as_refusal(exc: RefusedError | UnreachableError) -> RefusedError:
    """What a client is told; why the rates cannot be counted is the operator's business."""
    if isinstance(exc, RefusedError):
        return exc
    log.error("prefixctl: %s", exc)
    return RefusedError(503, Reason.UNAVAILABLE, "rates cannot be counted now; try again later")


def _unknown_route() -> RefusedError:
    return RefusedError(
        404,
        Reason.ROUTE,
        "the gateway does not know this route, and hands none on that it does not know",
    )


def _refuse_early(wait_seconds: float) -> None:
    if wait_seconds > 0:
        seconds = retry_after(wait_seconds)
        raise RefusedError(
            429, Reason.RATE, f"this tenant's rate is used up; try again in {seconds} s",
            retry_after_seconds=seconds,
        )  # fmt: skip


def _reads_tool_calls(scope: Scope) -> bool:
    """Whether the server was started with a tool parser; taken for granted if that is not known."""
    state = getattr(scope.get("app"), "state", None)
    return bool(getattr(getattr(state, "args", None), "enable_auto_tool_choice", True))


def _address(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def _is_forwarded(scope: Scope) -> bool:
    """Whether a proxy says that it hands on somebody else's request."""
    return any(
        name in {b"forwarded", b"via", b"x-real-ip"} or name.startswith(b"x-forwarded-")
        for name, _ in scope["headers"]
    )
