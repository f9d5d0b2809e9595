"""A block size that swallows the prefix, or that the CPU build cannot have.

## What it finds
A `--block-size` above the shared tokens of governed prompts (from the lock, for the target that
the start belongs to), and one that is no multiple of 32 where the file shows vLLM's CPU build.

## Why it matters
Only whole blocks are reused. A prefix of 700 tokens has no whole block of 1,024, so it is computed
again on every request. The CPU build does not start with other sizes than multiples of 32.

## Bad
```bash
VLLM_CPU_KVCACHE_SPACE=8 vllm serve acme/chat-8b --block-size 48 --enable-prompt-tokens-details
```

## Good
```bash
VLLM_CPU_KVCACHE_SPACE=8 vllm serve acme/chat-8b --block-size 64 --enable-prompt-tokens-details
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.rule import BLOCK_FLAGS, Setting, SettingRule, block_size

_CPU_MULTIPLE = 32
_SHOWN = 3


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    size = block_size(setting.launch)
    if not size:
        return
    flag = setting.launch.flag(*BLOCK_FLAGS)
    place = flag.value_location if flag else setting.launch.location
    name = flag.name if flag else BLOCK_FLAGS[0]
    if setting.is_vllm and setting.launch.on_cpu and size % _CPU_MULTIPLE:
        yield rule.finding(
            place,
            f"`{name} {size}`: vLLM's CPU build needs a multiple of {_CPU_MULTIPLE}",
            f"use {_CPU_MULTIPLE}, or a multiple of it; the target's block_size must be the same",
            variable=name,
        )
    usual = setting.target.settings.block_size if setting.target else 1
    prefixes = [p for p in setting.prefixes if p.shared_tokens >= usual]
    lost = [p for p in prefixes if p.shared_tokens < size]
    if lost:
        shown = ", ".join(f"{p.name} ({p.shared_tokens:,} tokens)" for p in lost[:_SHOWN])
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        yield rule.finding(
            place,
            f"`{name}` of {size:,} tokens leaves no whole block in the shared prefix of "
            f"{shown}{more}",
            f"use at most {min(p.shared_tokens for p in lost):,}; {usual} is the target's",
            variable=name,
            severity=rule.severity if len(lost) == len(prefixes) else Severity.WARNING,
        )


RULE = SettingRule(
    id="PFX606",
    name="block-too-large",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
