"""Governed prompt and parameter values -> the chat request that a client sends.

Text sections of one role that stand side by side become one message, joined by a blank line.
Tool schemas travel beside the messages; message lists stand where they are declared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Literal

from pydantic import RootModel

from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import PROMPT_FILE, Prompt, Section, SectionKind, Volatility, is_template
from prefixctl.errors import PromptError
from prefixctl.prompts.load import decode
from prefixctl.prompts.sandbox import Dialect, Job, Render, shared_sandbox
from prefixctl.yamlfile import StrictModel, line_of, load_model, validate

JOINT = "\n\n"
"""Between two text sections of one message."""

MESSAGE_EXAMPLE = "- {role: user, content: Hello}"
TOOL_EXAMPLE = '{"type": "function", "function": {"name": "look_up", "parameters": {}}}'

PROBE_VALUES = ("Alpha 1", "zulu: 2", "9", "你好", "(omega)", "\nnew line")
"""Values that differ from their first character on, each of another class, so that tokens which
merge across the end of the static text are found out."""


def render(
    prompt: Prompt, values: Mapping[str, str], *, leave_out: Collection[SectionKind] = ()
) -> ChatRequest:
    """Render a prompt with one value for every parameter that has none of its own.

    Args:
        prompt: The prompt.
        values: By parameter name.
        leave_out: Section types to render without.

    Raises:
        PromptError: If a value is missing, or a template or a section's file is wrong.
    """
    fixed = {p.name: p.value for p in prompt.parameters.values() if p.value is not None}
    known = {**fixed, **values}
    missing = sorted(set(prompt.parameters) - set(known))
    if missing:
        raise PromptError(
            f"no value for {', '.join(missing)}",
            path=prompt.origin,
            hint="give it with --set NAME=VALUE, or in the target's `parameters:`",
        )
    messages: list[dict[str, Any]] = []
    tools: list[Mapping[str, Any]] = []
    joinable = False
    for section in prompt.sections:
        if section.kind in leave_out:
            continue
        text = _text(prompt, section, known)
        if section.kind is SectionKind.TOOLS:
            tools += _tool_list(text, section, prompt)
        elif section.role is None:
            messages += _message_list(text, section, prompt)
            joinable = False
        elif joinable and messages[-1]["role"] == section.role:
            messages[-1]["content"] += JOINT + text
        else:
            messages.append({"role": section.role, "content": text})
            joinable = True
    return ChatRequest(messages=tuple(messages), tools=tuple(tools) or None)


def example_values(
    prompt: Prompt, index: int, deployment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Values from the parameters' examples: the ``index``-th, counted round.

    A parameter without examples gets a sentence that holds its name. Deployment values win.
    """
    values = {}
    for p in prompt.parameters.values():
        if p.value is None:
            values[p.name] = p.examples[index % len(p.examples)] if p.examples else f"({p.name})"
    return _with_deployment(prompt, values, deployment)


def probe_values(
    prompt: Prompt, index: int, deployment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Values whose first characters differ between any two indices, for every dynamic parameter.

    Raises:
        PromptError: If a deployment value is not given: an example must not become part of a key.
    """
    values = dict(_with_deployment(prompt, {}, deployment))
    for p in prompt.parameters.values():
        if p.scope.is_dynamic:
            values[p.name] = PROBE_VALUES[index % len(PROBE_VALUES)]
        elif p.scope is Volatility.DEPLOYMENT and p.name not in values:
            raise PromptError(
                f"no value for the deployment parameter '{p.name}'",
                path=f"{prompt.origin}/{PROMPT_FILE}",
                hint=f"give it in prefixctl.yaml: targets.<target>.parameters.{p.name}",
            )
    return values


def _with_deployment(
    prompt: Prompt, values: dict[str, str], deployment: Mapping[str, str] | None
) -> dict[str, str]:
    for name, value in (deployment or {}).items():
        parameter = prompt.parameters.get(name)
        if parameter is not None and parameter.scope is Volatility.DEPLOYMENT:
            values[name] = value
    return values


def _text(prompt: Prompt, section: Section, values: Mapping[str, str | None]) -> str:
    path = f"{prompt.origin}/{section.file}"
    source = decode(prompt.files[section.file], path)
    if not is_template(section.file):
        return source
    texts = {f: decode(b, f"{prompt.origin}/{f}") for f, b in prompt.files.items()}
    job = Job(
        source=source,
        renders=[Render(values=values)],
        dialect=Dialect.SECTION_CRLF if "\r\n" in source else Dialect.SECTION,
        files=texts,
    )
    (outcome,) = shared_sandbox().render(job)
    if outcome.text is None:
        failure = outcome.failure
        what, line = (failure.message, failure.line) if failure else ("it gave no text", None)
        raise PromptError(f"cannot be rendered: {what}", path=path, line=line)
    return outcome.text


def _tool_list(text: str, section: Section, prompt: Prompt) -> list[Mapping[str, Any]]:
    path = f"{prompt.origin}/{section.file}"
    value = _parse_json(text, path)
    entries = value if isinstance(value, list) else []
    if not entries:
        raise PromptError("not a list of tool schemas", path=path, line=1, hint=f"[{TOOL_EXAMPLE}]")
    for number, entry in enumerate(entries, start=1):
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise PromptError(
                f"tool {number} is no tool schema: a function with a name is missing",
                path=path,
                hint=TOOL_EXAMPLE,
            )
        if not isinstance(function.get("parameters", {}), dict | None):
            raise PromptError(f"tool {number}: `parameters` is no JSON schema", path=path)
    _check_sendable(entries, path)
    return entries


class TextPart(StrictModel):
    """A part of a message's content; governed prefixes hold text only."""

    type: Literal["text"]
    text: str


class Message(StrictModel):
    """A message of a list, in the OpenAI style."""

    role: str
    content: str | tuple[TextPart, ...] | None = None
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[dict[str, Any], ...] | None = None
    tool_call_id: str | None = None


class MessageList(RootModel[tuple[Message, ...]]):
    """A few-shot section: at least one message."""


def _message_list(text: str, section: Section, prompt: Prompt) -> list[dict[str, Any]]:
    path = f"{prompt.origin}/{section.file}"
    node = None
    if section.file.removesuffix(".j2").endswith(".json"):
        messages = validate(MessageList, _parse_json(text, path), path, PromptError)
    else:
        messages, node = load_model(MessageList, text.encode(), path, PromptError)
    if not messages.root:
        raise PromptError("holds no message", path=path, line=1, hint=MESSAGE_EXAMPLE)
    for number, message in enumerate(messages.root):
        for call in message.tool_calls or ():
            function = call.get("function")
            if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                raise PromptError(
                    "a tool call without a function's name",
                    path=path,
                    line=line_of(node, (number, "tool_calls")),
                )
    entries = [m.model_dump(exclude_unset=True) for m in messages.root]
    _check_sendable(entries, path)
    return entries


def _parse_json(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise PromptError(
            f"broken JSON: {exc.msg}", path=path, line=exc.lineno, column=exc.colno
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise PromptError(f"broken JSON: {exc}", path=path) from exc


def _check_sendable(entries: object, path: str) -> None:
    """Refuse what JSON cannot carry, before a version with it goes live."""
    try:
        json.dumps(entries, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise PromptError(f"cannot be sent as JSON: {exc}", path=path) from exc
