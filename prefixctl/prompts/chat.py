"""Chat templates applied as a server applies them.

The environment is the one that transformers gives a template (immutable sandbox, trimmed blocks,
loop controls, ``{% generation %}``); messages and tools are first brought into the shape in which
vLLM 0.32 hands them over (``renderers/hf.py``, ``renderers/chat_utils.py``).
"""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from prefixctl.core.ports import ChatRequest
from prefixctl.errors import TokenizerError
from prefixctl.prompts.sandbox import Job, Render, shared_sandbox


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's words for training; it prints its body."""

    tags = {"generation"}  # noqa: RUF012 - the attribute's type is jinja2's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def environment() -> ImmutableSandboxedEnvironment:
    """A Jinja2 environment like the one that transformers gives a chat template."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    return made


class ChatTemplate:
    """One chat template, ready to render requests."""

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str],
        kwargs: Mapping[str, Any],
        path: str,
    ) -> None:
        """Compile a template.

        Args:
            source: The template's text.
            special_tokens: ``bos_token`` and the like, as the template names them.
            kwargs: The target's ``chat_template_kwargs``.
            path: Where it came from, for messages.

        Raises:
            TokenizerError: If it cannot be parsed.
        """
        self._path = path
        self._source = source
        self._variables = {**special_tokens, **kwargs}
        try:
            # Parsed only: to compile is to compute constants, which belongs in the sandbox.
            self._lists = _iterates_content(environment().parse(source))
        except TemplateSyntaxError as exc:
            raise TokenizerError(
                f"broken chat template: {exc.message}", path=path, line=exc.lineno
            ) from exc
        except (ValueError, RecursionError) as exc:
            raise TokenizerError(f"broken chat template: {exc}", path=path) from exc

    def render(self, request: ChatRequest) -> str:
        """The text of a request, with the opening of the assistant's turn behind it.

        Raises:
            TokenizerError: If the template refuses the request, or does not end.
        """
        values = {
            "messages": [self._message(m) for m in request.messages],
            "tools": server_tools(request.tools),
            "documents": None,
            "add_generation_prompt": True,
            **self._variables,
        }
        now = datetime.datetime.now()
        job = Job(source=self._source, renders=[Render(values=values, now=now)])
        (outcome,) = shared_sandbox().render(job)
        if outcome.text is None:
            failure = outcome.failure
            what, line = (failure.message, failure.line) if failure else ("it gave no text", None)
            raise TokenizerError(
                f"the chat template cannot render the request: {what}", path=self._path, line=line
            )
        return outcome.text

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message as the server's parser leaves it: known fields, one form of content."""
        role = message.get("role")
        content = message.get("content")
        parts = [content] if isinstance(content, str) else list(content or [])
        texts = [p if isinstance(p, str) else self._text_of(p) for p in parts]
        made: dict[str, Any] = {"role": role}
        if self._lists and role != "tool":
            made["content"] = [{"type": "text", "text": t} for t in texts]
        else:
            made["content"] = "\n".join(texts)
        if role == "assistant" and message.get("tool_calls"):
            made["tool_calls"] = [_with_parsed_arguments(c) for c in message["tool_calls"]]
        if role == "assistant" and message.get("reasoning") is not None:
            made["reasoning"] = made["reasoning_content"] = message["reasoning"]
        for key in ("name", "task") + (("tool_call_id",) if role == "tool" else ()):
            if isinstance(message.get(key), str):
                made[key] = message[key]
        return made

    def _text_of(self, part: Mapping[str, Any]) -> str:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise TokenizerError(
                f"a message part of type '{part.get('type')}' cannot be rendered offline",
                path=self._path,
                hint="governed prefixes hold text only",
            )
        return str(part["text"])


def _with_parsed_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call in the server's field order, with its arguments as an object.

    Arguments that are no JSON object become an empty one, as on the server.
    """
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except json.JSONDecodeError:
            arguments = None
    arguments = copy.deepcopy(arguments) if isinstance(arguments, dict) else {}
    made = {"arguments": arguments, "name": function.get("name")}
    return {"id": call.get("id"), "function": made, "type": call.get("type", "function")}


def server_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Tool schemas as vLLM dumps them for the template: its field order, nulls included."""
    if tools is None:
        return None
    dumped = []
    for tool in tools:
        function = dict(tool["function"])
        made: dict[str, Any] = {
            "name": function.get("name"),
            "description": function.get("description"),
            "parameters": function.get("parameters"),
        }
        for key in ("strict", "defer_loading"):
            if function.get(key) is not None:
                made[key] = function[key]
        dumped.append({"type": tool.get("type", "function"), "function": made})
    return dumped


def _iterates_content(tree: nodes.Template) -> bool:
    """Whether the template loops over a message's content, so that it wants a list of parts."""
    for loop in tree.find_all(nodes.For):
        source = loop.iter
        while isinstance(source, (nodes.Filter, nodes.Test)) and source.node is not None:
            source = source.node
        if isinstance(source, nodes.Name) and source.name == "content":
            return True
        if isinstance(source, nodes.Getattr) and source.attr == "content":
            return True
        if (
            isinstance(source, nodes.Getitem)
            and isinstance(source.arg, nodes.Const)
            and source.arg.value == "content"
        ):
            return True
    return False
