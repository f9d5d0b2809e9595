"""`send` for the application: passes an answer on as it comes, and notes what it says."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prefixctl.gateway.namespaces import Seal
from prefixctl.gateway.record import Record
from prefixctl.gateway.routes import Shape
from prefixctl.gateway.usage import MARK, read_usage, strip_usage_event

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
_ERROR = 400
_FIRST_WORDS = b".delta"
"""In the Responses API events come before the first token; those with text have this name."""
_LAST = tuple(f"event: response.{end}\n".encode() for end in ("completed", "incomplete", "failed"))
"""In the Responses API these events have the usage, behind all that they quote."""
PREFIX_HEADER = "x-prefixctl-prefix"
"""Tells the client which prefix and version its request was given."""


class Answer:
    """Counts and times one answer. Nothing of it is copied; one event may be left out."""

    __slots__ = (
        "_clock", "_hide", "_record", "_send", "_shape", "_started", "_streams", "_strips", "_usage"
    )  # fmt: skip

    def __init__(
        self,
        send: Send,
        record: Record,
        seal: Seal | None,
        *,
        started: float,
        clock: Callable[[], float],
        strips_usage: bool,
        shape: Shape,
    ) -> None:
        """Set up.

        Args:
            send: To the client.
            record: What is noted.
            seal: What must not be seen in an error's words; None if nothing was added.
            started: When the request came.
            clock: Seconds.
            strips_usage: Whether the client did not ask for the event with the usage.
            shape: Of the API.
        """
        self._send = send
        self._record = record
        self._hide = () if seal is None else (seal.salt.encode(), seal.ticket.encode())
        self._started = started
        self._clock = clock
        self._strips = strips_usage
        self._shape = shape
        self._streams = False
        self._usage: bytes | None = None

    async def __call__(self, message: Message) -> None:
        """One message of the answer."""
        if message["type"] == "http.response.start":
            self._record.status = message["status"]
            headers = message.get("headers", ())
            self._streams = any(
                name.lower() == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in headers
            )
            if self._record.prefix is not None:
                told = (PREFIX_HEADER.encode(), self._record.prefix.label.encode())
                message = {**message, "headers": [*headers, told]}
        elif message["type"] == "http.response.body":
            data = message.get("body", b"")
            if data:
                message = self._look_at(message, data)
            if not message.get("more_body", False):
                self._record.complete = True
            elif data and not message["body"]:
                return
        await self._send(message)

    def finish(self) -> None:
        """The answer is over: read what was noted."""
        self._record.seconds = self._clock() - self._started
        if self._usage is not None:
            self._record.use = read_usage(self._usage)
        if self._record.use is not None and self._record.ttft_seconds is not None:
            self._record.use = dataclasses.replace(
                self._record.use, ttft_seconds=self._record.ttft_seconds
            )

    def _look_at(self, message: Message, data: bytes) -> Message:
        if self._record.status is not None and self._record.status >= _ERROR:
            return self._masked(message, data)
        if self._streams and self._record.ttft_seconds is None and self._is_first(data):
            self._record.ttft_seconds = self._clock() - self._started
        if MARK in data and self._may_tell(data):
            self._usage = data
            if self._strips:
                return {**message, "body": strip_usage_event(data)}
        return message

    def _may_tell(self, data: bytes) -> bool:
        """Whether a usage in it is the engine's: early events quote what the client sent."""
        return not (self._streams and self._shape is Shape.RESPONSE) or data.startswith(_LAST)

    def _is_first(self, data: bytes) -> bool:
        if self._shape is Shape.RESPONSE:
            return _FIRST_WORDS in data
        return not data.startswith(b":")

    def _masked(self, message: Message, data: bytes) -> Message:
        """An error may quote the request: what the gateway put into it is not for the client."""
        for secret in self._hide:
            if secret in data:
                data = data.replace(secret, b"*" * len(secret))
                message = {**message, "body": data}
        return message
