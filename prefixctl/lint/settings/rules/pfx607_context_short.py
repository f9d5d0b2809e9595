"""The longest request is shorter than a governed prompt.

## What it finds
`--max-model-len` (SGLang: `--context-length`) at or below the tokens of the shortest request of a
governed prompt, from the lock, for the target that the start belongs to.

## Why it matters
The server refuses such a request, so the prompt cannot be used at all, and a warm-up fails.

## Bad
```bash
vllm serve acme/chat-8b --max-model-len 512 --enable-prompt-tokens-details
```

## Good
```bash
vllm serve acme/chat-8b --max-model-len 8k --enable-prompt-tokens-details
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.rule import Setting, SettingRule, number

_FLAGS = ("--max-model-len", "--context-length")


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    flag = setting.launch.flag(*_FLAGS)
    limit = number(setting.launch.value(*_FLAGS))
    if flag is None or not limit or not setting.prefixes:
        return
    longest = max(setting.prefixes, key=lambda p: p.request_tokens)
    if longest.request_tokens < limit:
        return
    yield rule.finding(
        flag.value_location,
        f"`{flag.name}` of {limit:,} tokens has no room for {longest.name}, whose shortest "
        f"request takes {longest.request_tokens:,} tokens before the answer",
        f"allow more than {longest.request_tokens:,} tokens, with room for the answer and for a "
        "conversation",
        variable=flag.name,
    )


RULE = SettingRule(
    id="PFX607",
    name="context-too-short",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
