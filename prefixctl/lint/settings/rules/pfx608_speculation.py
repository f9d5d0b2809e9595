"""Speculative decoding that drops the last block of a hit.

## What it finds
vLLM with a `--speculative-config` whose method reads the target model's hidden states (eagle,
eagle3, mtp, dflash, dspark), unless `disable_eagle_block_drop` is set in it.

## Why it matters
With these methods vLLM gives up the last matched block, since the draft model needs the hidden
states of the tokens before the new ones. A prefix of exactly three blocks hits two. With large
blocks and short prefixes that is a good part of the gain.

## Bad
```bash
vllm serve acme/chat-8b --enable-prompt-tokens-details \\
  --speculative-config '{"method": "eagle3", "model": "acme/eagle-8b", "num_speculative_tokens": 3}'
```

## Good
```bash
vllm serve acme/chat-8b --enable-prompt-tokens-details \\
  --speculative-config '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
```
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.rule import Setting, SettingRule

_CONFIG = "--speculative-config"
_DROPPING = frozenset(["eagle", "eagle3", "mtp", "dflash", "dspark"])
_KEEPS = "disable_eagle_block_drop"


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    launch = setting.launch
    flag = launch.flag(_CONFIG, f"{_CONFIG}.method", "-sc")
    if not setting.is_vllm or flag is None or not flag.known:
        return
    given = _parsed(flag.value or "")
    method = str(launch.value(f"{_CONFIG}.method") or given.get("method", ""))
    kept = given.get(_KEEPS) is True or launch.flag(f"{_CONFIG}.{_KEEPS}") is not None
    if kept or not (method in _DROPPING or method.endswith("_mtp")):
        return
    yield rule.finding(
        flag.location,
        f"`{flag.name}` with method {method}: a hit can end one block earlier",
        "keep blocks small against the prefix, or count one block less; a method that does not "
        "read hidden states (ngram, a draft model) keeps the block",
        variable=flag.name,
    )


def _parsed(value: str) -> dict[str, object]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


RULE = SettingRule(
    id="PFX608",
    name="speculation-drops-a-block",
    severity=Severity.INFO,
    confidence=Confidence.HIGH,
    check=_check,
)
