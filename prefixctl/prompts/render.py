"""Governed prompt and parameter values -> the chat request that a client sends.

Text sections of one role that stand side by side become one message, joined by a blank line.
Tool schemas travel beside the messages; message lists stand where they are declared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from jinja2 import DictLoader, StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from prefixctl.core.ports import ChatRequest
from prefixctl.core.prompt import Prompt, Section, SectionKind, Volatility, is_template
from prefixctl.errors import PromptError
from prefixctl.prompts.load import decode
from prefixctl.yamlfile import load_value

JOINT = "\n\n"
"""Between two text sections of one message."""

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

    Parameters that hold still on a target keep one value: the target's, else the first example.
    """
    values = example_values(prompt, 0, deployment)
    for p in prompt.parameters.values():
        if p.scope.is_dynamic:
            values[p.name] = PROBE_VALUES[index % len(PROBE_VALUES)]
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
    environment = ImmutableSandboxedEnvironment(
        loader=DictLoader(texts),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        newline_sequence="\r\n" if "\r\n" in source else "\n",
    )
    try:
        return environment.get_template(section.file).render(values)
    except TemplateError as exc:
        line = getattr(exc, "lineno", None)
        raise PromptError(f"cannot be rendered: {exc}", path=path, line=line) from exc
    except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as exc:
        raise PromptError(f"cannot be rendered: {exc}", path=path) from exc


def _tool_list(text: str, section: Section, prompt: Prompt) -> list[Mapping[str, Any]]:
    path = f"{prompt.origin}/{section.file}"
    try:
        value = json.loads(text)
    except json.JSONDecodeError as exc:
        raise PromptError(
            f"broken JSON: {exc.msg}", path=path, line=exc.lineno, column=exc.colno
        ) from exc
    entries = value if isinstance(value, list) else []
    if not entries or not all(isinstance(t, dict) and "function" in t for t in entries):
        raise PromptError(
            "not a list of tool schemas",
            path=path,
            line=1,
            hint='[{"type": "function", "function": {"name": ...}}]',
        )
    return entries


def _message_list(text: str, section: Section, prompt: Prompt) -> list[dict[str, Any]]:
    path = f"{prompt.origin}/{section.file}"
    value = load_value(text.encode(), path, PromptError)
    entries = value if isinstance(value, list) else []
    if not entries or not all(isinstance(m, dict) and "role" in m for m in entries):
        raise PromptError(
            "not a list of messages", path=path, line=1, hint="- {role: user, content: ...}"
        )
    return [dict(m) for m in entries]
