"""Request logs: JSON lines with OpenAI or Anthropic style request bodies, read one at a time.

A line is a body, or a record that wraps one: ``{"timestamp": ..., "request": {...}, "usage":
{...}}``. Bodies are chat completions, completions, and Anthropic messages; the wrapper may also
be called ``body``, as in batch files. Lines of the gateway's log, which hold no text, are read too.
Nothing of a line is dropped: the record stays as it was.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from prefixctl.errors import InputError, NothingToDoError
from prefixctl.sources.traces import MalformedLine

MAX_LINE_BYTES = 64 * 1024 * 1024
"""More than any context window takes; a longer line is malformed, and is never held at once."""
KEPT_LINES = 10_000
"""Malformed lines that are remembered; the others are counted."""
_SHAPE = (
    "a log has one JSON request body a line: OpenAI or Anthropic style, or wrapped in a record "
    "under 'request'"
)
_GZIP = b"\x1f\x8b"
_WRAPPERS = ("request", "body", "request_body")
_GATEWAY_FIELDS = frozenset(["path", "tenant", "gateway_ms"])
_ANSWERS = ("response", "response_body")


class Style(StrEnum):
    """Whose request body a line holds."""

    CHAT = "openai chat"
    COMPLETION = "openai completion"
    ANTHROPIC = "anthropic"
    NAMED = "named"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """One request of a log.

    Attributes:
        line: Its line, from 1.
        style: How its body is built. NAMED has a reference to a governed prompt and no text;
            GATEWAY is of the gateway's log, with the prefix that it put in front, if any.
        record: The whole line as it was.
        body: The request body in it.
    """

    line: int
    style: Style
    record: Mapping[str, Any] = field(repr=False)
    body: Mapping[str, Any] = field(repr=False)

    @property
    def model(self) -> str | None:
        """The model that was asked."""
        return _word(self.body.get("model"))

    @property
    def prompt_tokens(self) -> int | None:
        """Prompt tokens as the server counted them, cached ones included; None if not logged."""
        if self.style is Style.GATEWAY:
            return _count(self.record.get("prompt_tokens"))
        return _prompt_tokens(self._usage)

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that the server took from its cache; None if not logged."""
        if self.style is Style.GATEWAY:
            return _count(self.record.get("cached_tokens"))
        details = self._usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        return _count(self._usage.get("cache_read_input_tokens") if cached is None else cached)

    @property
    def reference(self) -> str | None:
        """The governed prompt that the line names: ``name``, ``name@version`` or a prefix key."""
        if self.style is Style.GATEWAY:
            return _word(self.record.get("prefix"))
        for place in (self.body, self.record):
            if key := _word(place.get("prefix_key")):
                return key
        name = _word(self.record.get("prompt_name"))
        version = self.record.get("prompt_version")
        return f"{name}@{version}" if name and version is not None else name

    @property
    def was_refused(self) -> bool:
        """Whether the gateway refused it, or the server failed: then nothing was computed."""
        status = self.record.get("status") if self.style is Style.GATEWAY else None
        failed = isinstance(status, int) and status >= 400  # noqa: PLR2004 - of HTTP
        return self.style is Style.GATEWAY and (failed or "reason" in self.record)

    @property
    def _usage(self) -> Mapping[str, Any]:
        holders = [self.record, *(self.record.get(n) for n in _ANSWERS)]
        holders += [h.get("body") for h in holders if isinstance(h, Mapping)]
        for holder in holders:
            usage = holder.get("usage") if isinstance(holder, Mapping) else None
            if isinstance(usage, Mapping):
                return usage
        return {}


class RequestLog:
    """A log file. Iterate once; then it says what was in it.

    Attributes:
        path: The file.
        requests: How many lines were requests.
        malformed: The first lines that were none, `KEPT_LINES` at most.
        malformed_count: How many were none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.requests = 0
        self.malformed: list[MalformedLine] = []
        self.malformed_count = 0

    def refuse(self, line: int, reason: str) -> None:
        """Note that a line is no request."""
        self.malformed_count += 1
        if len(self.malformed) < KEPT_LINES:
            self.malformed.append(MalformedLine(line=line, reason=reason))

    def __iter__(self) -> Iterator[LoggedRequest]:
        """The requests, in the order of the file.

        Raises:
            InputError: If the file cannot be read.
            NothingToDoError: At its end, if no line was a request.
        """
        for number, raw in _lines(self.path):
            try:
                request = parse_line(raw, number)
            except ValueError as exc:
                self.refuse(number, str(exc))
                continue
            self.requests += 1
            yield request
        if not self.requests:
            raise self.nothing()

    def nothing(self) -> NothingToDoError:
        """The error for a log without any request."""
        if not self.malformed_count:
            return NothingToDoError("the log is empty", path=str(self.path), hint=_SHAPE)
        first = self.malformed[0]
        return NothingToDoError(
            f"none of {self.malformed_count:,} lines is a request; the first: {first.reason}",
            path=str(self.path),
            line=first.line,
            hint=_SHAPE,
        )


def parse_line(raw: bytes, number: int) -> LoggedRequest:
    """One line of a log.

    Raises:
        ValueError: If it is no request, with the reason.
    """
    if len(raw) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        record = json.loads(raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw)
    except UnicodeDecodeError as exc:
        raise ValueError("not UTF-8") from exc
    except (ValueError, RecursionError) as exc:
        raise ValueError("not JSON") from exc
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - of a file, not of an argument
    body = _body(record)
    style = _style(body, record)
    return LoggedRequest(line=number, style=style, record=record, body=body)


def _body(record: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in _WRAPPERS:
        inner = record.get(name)
        if isinstance(inner, str):
            try:
                inner = json.loads(inner)
            except (ValueError, RecursionError) as exc:
                raise ValueError(f"'{name}' is a string, but not one of JSON") from exc
        if isinstance(inner, dict):
            return inner
    return record


def _style(body: Mapping[str, Any], record: Mapping[str, Any]) -> Style:
    messages = body.get("messages")
    if messages is not None:
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise ValueError("'messages' is no list of messages")
        if not isinstance(body.get("tools") or [], list):
            raise ValueError("'tools' is no list")
        return Style.ANTHROPIC if _is_anthropic(body, messages) else Style.CHAT
    if isinstance(body.get("prompt"), str):
        return Style.COMPLETION
    if _word(body.get("prefix_key")) or _word(record.get("prefix_key")):
        return Style.NAMED
    if record.keys() >= _GATEWAY_FIELDS:
        return Style.GATEWAY
    raise ValueError("no request: neither 'messages' nor a text in 'prompt'")


def _is_anthropic(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a body is Anthropic's: system text beside the messages, or its kinds of parts."""
    if "system" in body or "anthropic_version" in body:
        return True
    if any(isinstance(t, Mapping) and "input_schema" in t for t in body.get("tools") or ()):
        return True
    parts = (p for m in messages if isinstance(m.get("content"), list) for p in m["content"])
    return any(isinstance(p, Mapping) and p.get("type") in _ANTHROPIC_PARTS for p in parts)


_ANTHROPIC_PARTS = frozenset(["tool_use", "tool_result", "thinking", "redacted_thinking"])


def _prompt_tokens(usage: Mapping[str, Any]) -> int | None:
    """OpenAI counts cached tokens among the prompt's, Anthropic beside them."""
    if (found := _count(usage.get("prompt_tokens"))) is not None:
        return found
    plain = _count(usage.get("input_tokens"))
    if plain is None:
        return None
    beside = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return plain + sum(_count(usage.get(name)) or 0 for name in beside)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value >= 0 else None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers; at most a little more than the limit."""
    try:
        with _open(path) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    rest = line
                    while rest and not rest.endswith(b"\n"):
                        rest = file.readline(MAX_LINE_BYTES)
                if line.strip():
                    yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error) as exc:
        raise InputError(
            f"broken gzip: {exc}", path=str(path), hint="the file was cut off, or is damaged"
        ) from exc
    except OSError as exc:
        raise InputError(f"cannot be read: {exc.strerror or exc}", path=str(path)) from exc


def _open(path: Path) -> io.BufferedIOBase:
    if path.exists() and not path.is_file() and not path.is_fifo():
        raise InputError("not a file", path=str(path), hint="give a file of JSON lines")
    if path.is_fifo():
        return path.open("rb")
    with path.open("rb") as file:
        head = file.read(len(_GZIP))
    return gzip.open(path, "rb") if head == _GZIP else path.open("rb")
