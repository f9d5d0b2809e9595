"""What a text is: its placeholders, and the same text as a Jinja2 template."""

from __future__ import annotations

import re

_JINJA = re.compile(r"\{\{-?\s*[^\W\d][\w.\[\]'\" |()]*-?\}\}|\{%-?\s*\w+")
_BRACES = re.compile(r"\{\{|\}\}|\{([^\W\d]\w*)\}")
_MARKED = re.compile(r"\{[{%#][^{}]{0,400}[}%#]\}")
_HOLE = re.compile(r"(?<!\{)\{[^\W\d]\w*\}(?!\})")
_WORD = re.compile(r"[^\W\d_]{2,}|[\u3040-\u30ff\u4e00-\u9fff]")
_LOOP = re.compile(r"\{%-?\s*for\s+\w+\s+in\s+(?:loop_)?messages\b")
_ROLE = re.compile(r"\.role\b|\[.role.\]")
_CODE = re.compile(r"\s*(?:<!DOCTYPE|<html|<\?xml|SELECT\s|server\s*\{|apiVersion:|#!/)", re.I)
_PROMPT_WORDS = frozenset(
    ["prompt", "prompts", "system", "instruction", "instructions", "persona", "personas",
     "preamble", "template", "templates", "agent", "agents"]
)  # fmt: skip
_NAME_WORD = re.compile(r"[A-Za-z][a-z]*")
MIN_WORDS = 6
"""A text with fewer words of its own is no prompt."""


def has_jinja(text: str) -> bool:
    """Whether there are Jinja2 expressions or statements in it."""
    return bool(_JINJA.search(text))


def has_braces(text: str) -> bool:
    """Whether there are placeholders of Python's format: ``{name}``."""
    return bool(_HOLE.search(text))


def is_prose(text: str) -> bool:
    """Whether there are enough words outside placeholders, and it is not plainly something else."""
    plain = _MARKED.sub(" ", text)
    return not _CODE.match(text) and len(_WORD.findall(plain)) >= MIN_WORDS


def is_chat_template(text: str) -> bool:
    """Whether it is a model's chat template: it loops over the messages."""
    loop = _LOOP.search(text)
    return "add_generation_prompt" in text or bool(loop and _ROLE.search(text, loop.end()))


def names_a_prompt(*names: str) -> bool:
    """Whether one of the names says that a text is a prompt."""
    return any(_PROMPT_WORDS & {w.lower() for w in _NAME_WORD.findall(n)} for n in names)


def as_jinja(text: str) -> str:
    """A text with ``{name}`` placeholders as the Jinja2 template that renders the same.

    Doubled braces become single ones, as `str.format` has it; what Jinja2 would read as its own
    is escaped.
    """
    parts: list[str] = []
    at = 0
    for match in _BRACES.finditer(text):
        parts.append(_escaped(text[at : match.start()]))
        parts.append(f"{{{{ {match[1]} }}}}" if match[1] else "{{ '" + match[0][0] + "' }}")
        at = match.end()
    parts.append(_escaped(text[at:]))
    return "".join(parts)


def _escaped(text: str) -> str:
    return re.sub(r"\{(?=[%#])", "{{ '{' }}", text)
