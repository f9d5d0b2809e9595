"""What a chat request says to the model, in one form for all styles, so that two can be compared.

A logged body of Anthropic style is brought into the OpenAI style as vLLM 0.32 does
(``entrypoints/anthropic/serving.py``), tools into the form in which it hands them to a template.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prefixctl.core.ports import ChatRequest
from prefixctl.prompts.chat import server_tools
from prefixctl.sources.requests import LoggedRequest, Style

_BILLING = "x-anthropic-billing-header"
_KEPT = ("name", "reasoning", "tool_calls", "tool_call_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message: who says it, its text, and as JSON all else that reaches a template."""

    role: str
    text: str = field(repr=False)
    rest: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A request without what does not reach the model.

    Attributes:
        tools: The tool schemas as JSON, in their order; empty without any.
        turns: The messages. A completion's prompt is one turn without a role.
    """

    tools: str = field(default="", repr=False)
    turns: tuple[Turn, ...]

    @property
    def text(self) -> str:
        """All its words, for counting tokens where no chat template is at hand."""
        parts = [self.tools, *(t.text + t.rest for t in self.turns)]
        return "\n".join(p for p in parts if p)


def conversation_of(request: ChatRequest) -> Conversation:
    """What a rendered governed prompt says."""
    return Conversation(tools=_tools(request.tools), turns=tuple(map(_turn, request.messages)))


def logged_conversation(request: LoggedRequest) -> Conversation:
    """What a logged request says; no turns if it only names a governed prompt.

    Raises:
        ValueError: If a message or a tool is not built as its style has it, with the reason.
    """
    body = request.body
    if request.style in {Style.NAMED, Style.GATEWAY}:
        return Conversation(turns=())
    if request.style is Style.COMPLETION:
        return Conversation(turns=(Turn(role="", text=body["prompt"]),))
    messages, tools = _openai(request)
    return Conversation(tools=_tools(tools), turns=tuple(map(_turn, messages)))


def logged_request(request: LoggedRequest) -> ChatRequest | None:
    """A logged chat request as its server renders it; None for one of another kind."""
    if request.style not in {Style.CHAT, Style.ANTHROPIC}:
        return None
    messages, tools = _openai(request)
    return ChatRequest(messages=tuple(messages), tools=tuple(tools) if tools else None)


def _openai(
    request: LoggedRequest,
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]] | None]:
    """The messages and tools of a chat request in the OpenAI style."""
    body = request.body
    if request.style is Style.ANTHROPIC:
        return list(_openai_messages(body)), _openai_tools(body.get("tools"))
    return body["messages"], body.get("tools")


def _turn(message: Mapping[str, Any]) -> Turn:
    role = message.get("role")
    if not isinstance(role, str):
        raise ValueError("a message without a role")  # noqa: TRY004 - of a file, not of an argument
    rest = {k: message[k] for k in _KEPT if message.get(k) is not None}
    if isinstance(calls := rest.get("tool_calls"), list | tuple):
        rest["tool_calls"] = [_call(c) for c in calls]
    text = "\n".join(_texts(message.get("content")))
    return Turn(role=role, text=text, rest=_json(rest) if rest else "")


def _call(call: object) -> object:
    """A call with its arguments as an object: their spaces do not reach a template."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    with suppress(ValueError):
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    return {"id": call.get("id"), "name": function.get("name"), "arguments": arguments}


def _texts(content: object) -> Iterator[str]:
    """The texts of a message; a part that is none stands as JSON, so that it equals itself only."""
    if content is None or isinstance(content, str):
        yield content or ""
        return
    if not isinstance(content, list | tuple):
        raise ValueError("a message whose content is neither text nor a list of parts")  # noqa: TRY004
    for part in content:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"]
        else:
            yield _json(part)


def _tools(tools: Sequence[Mapping[str, Any]] | None) -> str:
    if not tools:
        return ""
    try:
        return _json_in_order(server_tools(tools))
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ValueError("a tool without a function") from exc


def _openai_tools(tools: object) -> list[dict[str, Any]] | None:
    if not isinstance(tools, list):
        return None
    return [
        {
            "type": "function",
            "function": {
                "name": t.get("name"),
                "description": t.get("description"),
                "parameters": t.get("input_schema"),
            },
        }
        for t in tools
        if isinstance(t, Mapping)
    ]


def _openai_messages(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    system = "".join(_system_texts(body.get("system")))
    if system:
        yield {"role": "system", "content": system}
    for message in body["messages"]:
        if message.get("role") == "system":
            yield {"role": "system", "content": "".join(_system_texts(message.get("content")))}
        elif isinstance(message.get("content"), list):
            yield from _converted(message)
        else:
            yield dict(message)


def _system_texts(content: object) -> Iterator[str]:
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str) and not text.startswith(_BILLING):
            yield text


def _converted(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A message of parts: results of tools are messages of their own, ahead of the words."""
    made: dict[str, Any] = {"role": message.get("role"), "content": []}
    for part in message["content"]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "tool_result":
            text = "\n".join(_texts(part.get("content")))
            yield {"role": "tool", "content": text, "tool_call_id": part.get("tool_use_id")}
        elif kind == "tool_use":
            function = {"name": part.get("name"), "arguments": json.dumps(part.get("input") or {})}
            call = {"id": part.get("id"), "type": "function", "function": function}
            made.setdefault("tool_calls", []).append(call)
        elif kind == "thinking":
            made["reasoning"] = made.get("reasoning", "") + str(part.get("thinking") or "")
        elif kind != "redacted_thinking":
            made["content"].append(part)
    if made["content"] or len(made) > 2:  # noqa: PLR2004 - more than role and content
        yield made


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _json_in_order(value: object) -> str:
    """Of tools the order of keys counts as well: a template prints them as they come."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
