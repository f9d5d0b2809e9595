"""Prompts in YAML and JSON: message lists, and long strings under a prompt's name."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from prefixctl.adopt.model import Candidate, LeftOut, Piece
from prefixctl.adopt.texts import (
    as_jinja,
    has_braces,
    has_jinja,
    is_chat_template,
    is_prose,
    names_a_prompt,
)
from prefixctl.core.prompt import SectionKind
from prefixctl.errors import InputError
from prefixctl.yamlfile import load_value

MAX_DEPTH = 8
MAX_VALUES = 100_000
"""Looked at in one file: aliases can make more of them than there are bytes."""
MAX_PROMPTS = 50
"""In one file: a file with more is a data set."""
_LONG_TEXT = 200
_OF_A_MODEL = (
    "a model's chat template: name its folder as `tokenizer:` of a target, and see what it does "
    "to the prefix with `prefixctl template`"
)
_CONTENT_KEYS = frozenset(["content", "text", "body", "template"])
_ROLES = {"system", "developer", "user", "assistant"}


def structured_candidates(source: str, data: bytes) -> list[Candidate | LeftOut]:
    """The prompts in a YAML or JSON file; none in a file that cannot be read, or a data set."""
    try:
        value = load_value(data, source)
    except InputError:
        return []
    named = names_a_prompt(PurePosixPath(source).stem, PurePosixPath(source).parent.name)
    found: list[Candidate | LeftOut] = []
    pending: list[tuple[Any, tuple[str, ...]]] = [(value, ())]
    for _ in range(MAX_VALUES):
        if not pending or len(found) > MAX_PROMPTS:
            break
        child, keys = pending.pop()
        if _is_message_list(child):
            found.append(_messages(child, source, ".".join(keys)))
        elif isinstance(child, str):
            if is_chat_template(child):
                found.append(LeftOut(path=f"{source}#{'.'.join(keys)}", reason=_OF_A_MODEL))
            elif _is_prompt(keys[-1] if keys else "", child, named=named):
                found.append(_string(child, source, ".".join(keys)))
        elif len(keys) < MAX_DEPTH:
            pending += [(v, (*keys, str(k))) for k, v in reversed(_entries(child))]
    return found if len(found) <= MAX_PROMPTS else []


def _entries(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def text_piece(
    text: str, stem: str, kind: SectionKind, *, suffix: str = ".md", role: str | None = None
) -> Piece:
    """A section from a text, as a template if it has placeholders."""
    if has_jinja(text):
        return Piece(kind=kind, file=f"{stem}{suffix}.j2", text=text, role=role)
    if has_braces(text):
        return Piece(kind=kind, file=f"{stem}{suffix}.j2", text=as_jinja(text), role=role)
    return Piece(kind=kind, file=f"{stem}{suffix}", text=text, role=role)


def _is_prompt(key: str, text: str, *, named: bool) -> bool:
    """Whether the key says that a text is a prompt; in a file of prompts, ``content`` does too."""
    if key.lower() in _CONTENT_KEYS and not (named and len(text) >= _LONG_TEXT):
        return False
    return (key.lower() in _CONTENT_KEYS or names_a_prompt(key)) and is_prose(text)


def _string(text: str, source: str, key: str) -> Candidate:
    piece = text_piece(text, "system", SectionKind.SYSTEM_PROMPT)
    return Candidate(source=source, key=key, pieces=(piece,))


def _is_message_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(m, dict) and m.get("role") in _ROLES and "content" in m for m in value)
    )


def _messages(value: list[dict[str, Any]], source: str, key: str) -> Candidate | LeftOut:
    origin = f"{source}#{key}" if key else source
    if not all(isinstance(m["content"], str) for m in value):
        return LeftOut(path=origin, reason="a message whose content is no text")
    pieces: list[Piece] = []
    shots: list[dict[str, Any]] = []
    for number, message in enumerate(value, 1):
        role, content = str(message["role"]), str(message["content"])
        holes = has_jinja(content) or has_braces(content)
        last = number == len(value)
        if role == "assistant" and holes:
            return LeftOut(path=origin, reason="an assistant message with placeholders")
        if role in {"system", "developer"} or holes or (last and role == "user"):
            pieces += _shots(shots, number)
            shots = []
            kind = SectionKind.USER if role == "user" else SectionKind.SYSTEM_PROMPT
            own = role if role == "developer" else None
            pieces.append(text_piece(content, f"{number:02}-{role}", kind, role=own))
        else:
            shots.append({"role": role, "content": content})
    pieces += _shots(shots, len(value) + 1)
    return Candidate(source=source, key=key, pieces=tuple(pieces))


def _shots(shots: list[dict[str, Any]], number: int) -> list[Piece]:
    if not shots:
        return []
    text = json.dumps(shots, indent=2, ensure_ascii=False) + "\n"
    return [Piece(kind=SectionKind.FEW_SHOT, file=f"{number - 1:02}-few_shot.json", text=text)]
