"""Puts a prefix in front of a client's words, in the shape of each API.

Each shape is chosen so that vLLM 0.32 makes of it the conversation that the chat API gets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prefixctl.gateway.body import Body
from prefixctl.gateway.prefix import KEY_FIELD, Expansion
from prefixctl.gateway.refusal import Reason, RefusedError
from prefixctl.gateway.routes import Shape
from prefixctl.prompts.render import JOINT

Message = Mapping[str, Any]


def words_field(shape: Shape) -> str:
    """The field that holds the client's own words."""
    if shape is Shape.RESPONSE:
        return "input"
    return "prompt" if shape is Shape.COMPLETION else "messages"


def sends_words(body: Body, shape: Shape) -> bool:
    """Whether the client sends words of its own."""
    return body.get(words_field(shape)) not in (None, "", [])


def shape_of(body: Body, shape: Shape) -> Shape:
    """A body for the chat routes that has a prompt and no messages is one for completions."""
    if shape is Shape.CHAT and "messages" not in body and "prompt" in body:
        return Shape.COMPLETION
    return shape


def place(body: Body, shape: Shape, expansion: Expansion) -> None:
    """Put a prefix in front.

    Raises:
        RefusedError: 422 if this API cannot say it.
    """
    placers: Mapping[Shape, Callable[[Body, Expansion], None]] = {
        Shape.CHAT: _place_chat,
        Shape.COMPLETION: _place_completion,
        Shape.RESPONSE: _place_response,
        Shape.MESSAGES: _place_messages,
    }
    placers[shape](body, expansion)


def decline_tools(body: Body, shape: Shape) -> None:
    """Say that no tool is to be called, where the prefix brought tools and the client said nothing.

    vLLM refuses its own default, to let the model choose, on a server without a tool parser.
    """
    if body.get("tools"):
        body["tool_choice"] = {"type": "none"} if shape is Shape.MESSAGES else "none"


def _place_chat(body: Body, expansion: Expansion) -> None:
    own = _own_list(body, "messages")
    messages = list(expansion.messages)
    if own and _continues(own[0], expansion):
        messages[-1] = {**messages[-1], "content": messages[-1]["content"] + _text_behind(own)}
        own = own[1:]
    body["messages"] = [*messages, *own]
    _place_tools(body, expansion, dict, _chat_name)


def _place_completion(body: Body, expansion: Expansion) -> None:
    texts = [m["content"] for m in expansion.messages if isinstance(m.get("content"), str)]
    if (
        expansion.tools
        or len(texts) < len(expansion.messages)
        or any(m["role"] == "assistant" for m in expansion.messages)
    ):
        raise _unsayable("it has tools or example messages, which a completion cannot hold")
    prompt = body.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        raise RefusedError(
            422, Reason.PREFIX_PARAMETERS, f"with `{KEY_FIELD}` the prompt is one text",
            param="prompt",
        )  # fmt: skip
    body["prompt"] = JOINT.join([*texts, *([prompt] if prompt else [])])


def _place_response(body: Body, expansion: Expansion) -> None:
    own = body.get("input")
    if own is None or own == "":
        own = []
    elif isinstance(own, str):
        own = [{"role": "user", "content": own}]
    elif not isinstance(own, list):
        raise _no_list("input")
    items = [item for m in expansion.messages for item in _response_items(m)]
    if own and _continues(own[0], expansion):
        items[-1] = {**items[-1], "content": items[-1]["content"] + _text_behind(own)}
        own = own[1:]
    instructions = body.pop("instructions", None)
    if instructions:
        items.append({"role": "system", "content": instructions})
    body["input"] = [*items, *own]
    _place_tools(body, expansion, _response_tool, lambda tool: tool.get("name"))


def _response_items(message: Message) -> Iterable[dict[str, Any]]:
    role, content = message["role"], message.get("content")
    if message.get("reasoning"):
        raise _unsayable("its example messages have reasoning")
    if role == "tool":
        call_id = message.get("tool_call_id")
        yield {"type": "function_call_output", "call_id": call_id, "output": content}
        return
    if content is not None:
        yield {"role": role, "content": content}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield {
            "type": "function_call",
            "call_id": call.get("id"),
            "name": function["name"],
            "arguments": function.get("arguments", ""),
        }


def _response_tool(tool: Message) -> dict[str, Any]:
    function = tool["function"]
    return {
        "type": "function",
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        "strict": function.get("strict"),
    }


def _place_messages(body: Body, expansion: Expansion) -> None:
    own = _own_list(body, "messages")
    prefix = list(expansion.messages)
    system = None
    if prefix and prefix[0]["role"] == "system":
        system = prefix.pop(0)["content"]
    if not isinstance(system, str | None):
        raise _unsayable("its system message has parts")
    messages = [_anthropic_message(m) for m in prefix]
    own_system = body.pop("system", None)
    if own and not own_system and _continues(own[0], expansion):
        last = messages[-1] if messages else None
        if last is None:
            raise _unsayable("its system message goes on in the client's")
        messages[-1] = {**last, "content": last["content"] + _text_behind(own)}
        own = own[1:]
    if own_system:
        messages.append({"role": "system", "content": own_system})
    if system is not None:
        body["system"] = system
    body["messages"] = [*messages, *own]
    _place_tools(body, expansion, _anthropic_tool, lambda tool: tool.get("name"))


def _anthropic_message(message: Message) -> dict[str, Any]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        result = {
            "type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": content,
        }  # fmt: skip
        return {"role": "user", "content": [result]}
    blocks: list[dict[str, Any]] = []
    if message.get("reasoning"):
        blocks.append({"type": "thinking", "thinking": message["reasoning"]})
    calls = message.get("tool_calls") or ()
    if not calls and not blocks:
        return {"role": role, "content": content}
    if isinstance(content, str) and content:
        blocks.append({"type": "text", "text": content})
    elif content:
        blocks += [dict(part) for part in content]
    for call in calls:
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": call.get("id"),
                "name": function["name"],
                "input": _arguments(function.get("arguments")),
            }
        )
    return {"role": role, "content": blocks}


def _arguments(text: object) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) and text else text or {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _unsayable("an example tool call has arguments that are no JSON object")
    return value


def _anthropic_tool(tool: Message) -> dict[str, Any]:
    function = tool["function"]
    made = {"name": function["name"], "input_schema": function.get("parameters") or {}}
    for name in ("description", "strict"):
        if function.get(name) is not None:
            made[name] = function[name]
    return made


def _place_tools(
    body: Body,
    expansion: Expansion,
    convert: Callable[[Message], dict[str, Any]],
    name_of: Callable[[Message], object],
) -> None:
    if not expansion.tools:
        return
    own = _own_list(body, "tools")
    tools = [convert(tool) for tool in expansion.tools]
    names = [name_of(tool) for tool in tools]  # a client's could be anything, even unhashable
    for tool in own:
        if isinstance(tool, dict) and name_of(tool) in names:
            raise RefusedError(
                422,
                Reason.PREFIX_PARAMETERS,
                f"the prefix has a tool '{name_of(tool)}' already",
                param="tools",
            )
    body["tools"] = [*tools, *own]


def _chat_name(tool: Message) -> object:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else None


def _own_list(body: Body, name: str) -> list[Any]:
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _no_list(name)
    return value


def _continues(first: object, expansion: Expansion) -> bool:
    return (
        expansion.joins is not None
        and isinstance(first, dict)
        and first.get("role") == expansion.joins
        and isinstance(first.get("content"), str)
        and set(first) <= {"role", "content", "type"}
    )


def _text_behind(own: list[Any]) -> str:
    text: str = own[0]["content"]
    return JOINT + text


def _no_list(name: str) -> RefusedError:
    return RefusedError(422, Reason.PREFIX_PARAMETERS, f"`{name}` is no list", param=name)


def _unsayable(why: str) -> RefusedError:
    return RefusedError(
        422,
        Reason.PREFIX_PARAMETERS,
        f"this prefix cannot be sent through this API: {why}; use chat completions",
        param=KEY_FIELD,
    )
