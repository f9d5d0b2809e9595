"""A request's body: read within bounds, parsed once, and handed on in another form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pydantic_core import from_json

from prefixctl.config import GatewayConfig
from prefixctl.gateway.refusal import Reason, RefusedError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
_MOST_DIGITS = 18


class GoneError(Exception):
    """The client went away before its body was there."""


class Replay:
    """`receive` for the application: the new body first, then what the client does."""

    __slots__ = ("_body", "_receive")

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        """The next message."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def read_body(scope: Scope, receive: Receive, settings: GatewayConfig) -> bytes:
    """The whole body, within the bounds of size and time.

    Raises:
        RefusedError: 413 or 408 if it is beyond them.
        GoneError: If the client goes away.
    """
    limit = int(settings.max_body_mb * 2**20)
    for name, value in scope["headers"]:
        if name == b"content-length" and _is_above(value, limit):
            raise _too_large(limit)
    chunks: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(settings.body_seconds):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise _too_large(limit)
                chunks.append(chunk)
                more = message.get("more_body", False)
    except TimeoutError as exc:
        raise RefusedError(
            408, Reason.TOO_SLOW, f"the body did not come within "
            f"{settings.body_seconds:g} s"
        ) from exc  # fmt: skip
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _is_above(digits: bytes, limit: int) -> bool:
    return digits.isdigit() and (len(digits) > _MOST_DIGITS or int(digits) > limit)


def check_type(scope: Scope) -> None:
    """Refuse a body that is not plain JSON in UTF-8, with 415."""
    given = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            given = value
        elif name == b"content-encoding" and value.strip().lower() not in {b"", b"identity"}:
            raise RefusedError(415, Reason.BODY, "the body must not be compressed")
    kind, _, rest = given.partition(b";")
    charset = rest.strip().lower().removeprefix(b"charset=").strip(b'"')
    if kind.strip().lower() != b"application/json" or charset not in {b"", b"utf-8", b"utf8"}:
        raise RefusedError(415, Reason.BODY, "the body must be application/json in UTF-8")


def parse_body(data: bytes) -> dict[str, Any]:
    """The object that a body is; RefusedError (400) if it is none."""
    try:
        body = from_json(data)
    except ValueError as exc:
        raise RefusedError(400, Reason.BODY, f"the body is no JSON: {exc}") from exc
    if not isinstance(body, dict):
        raise RefusedError(400, Reason.BODY, "the body is no JSON object")
    return body


def _too_large(limit: int) -> RefusedError:
    return RefusedError(413, Reason.TOO_LARGE, f"the body is larger than {limit / 2**20:g} MB")
