"""What an answer says of its tokens, read from its bytes without parsing the rest.

JSON escapes every quotation mark inside a string, so the bytes that these patterns look for can
only be the field itself, whatever the model wrote. What a client sent, and an event quotes, is kept
out by whoever calls.
"""

from __future__ import annotations

import json
import re
from typing import Any

from prefixctl.core.usage import CacheUse

MARK = b'"usage":{'
_EMPTY_CHOICES = b'"choices":[],"usage":{'
_USAGE = re.compile(rb'"usage":(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})')
EVENT_END = b"\n\n"


def read_usage(data: bytes) -> CacheUse | None:
    """The last usage in a piece of an answer; None if there is none that can be read.

    The OpenAI APIs count all prompt tokens, the Anthropic API leaves out what the cache gave.
    """
    found = None
    for found in _USAGE.finditer(data):  # noqa: B007 - the last one is wanted
        pass
    if found is None:
        return None
    try:
        usage = json.loads(found.group(1))
    except ValueError:
        return None
    if "prompt_tokens" in usage:
        return _use(usage["prompt_tokens"], usage.get("prompt_tokens_details"))
    if "input_tokens_details" in usage:
        return _use(usage.get("input_tokens"), usage["input_tokens_details"])
    return _anthropic(usage)


def _use(prompt: Any, details: Any) -> CacheUse | None:
    if not isinstance(prompt, int):
        return None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return CacheUse(prompt_tokens=prompt, cached_tokens=cached if isinstance(cached, int) else None)


def _anthropic(usage: dict[str, Any]) -> CacheUse | None:
    rest, cached = usage.get("input_tokens"), usage.get("cache_read_input_tokens")
    created = usage.get("cache_creation_input_tokens") or 0
    if not isinstance(rest, int):
        return None
    if not isinstance(cached, int) or not isinstance(created, int):
        return CacheUse(prompt_tokens=rest, cached_tokens=None)
    return CacheUse(prompt_tokens=rest + cached + created, cached_tokens=cached)


def strip_usage_event(data: bytes) -> bytes:
    """A piece of a stream without the event that holds nothing but the usage."""
    if _EMPTY_CHOICES not in data:
        return data
    events = data.split(EVENT_END)
    return EVENT_END.join(event for event in events if _EMPTY_CHOICES not in event)
