"""Block hashes that can be made to collide.

## What it finds
`--prefix-caching-hash-algo xxhash` or `xxhash_cbor`. It is an error if PYTHONHASHSEED is a
constant in the same file, since then the seed is known as well.

## Why it matters
A block of the cache is found by its hash alone. xxhash is fast and no cryptographic hash: whoever
knows the seed can look for another text with the same hash, and gets the KV values of another
tenant's prompt, or has others get those of theirs. vLLM draws a random seed for these algorithms;
a constant one takes that protection away.

## Bad
```bash
PYTHONHASHSEED=0 vllm serve acme/chat-8b --prefix-caching-hash-algo xxhash_cbor \\
  --enable-prompt-tokens-details
```

## Good
```bash
PYTHONHASHSEED=0 vllm serve acme/chat-8b --prefix-caching-hash-algo sha256_cbor \\
  --enable-prompt-tokens-details
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.rule import ALGORITHM_FLAG, SEED, Setting, SettingRule, seed

_WEAK = frozenset(["xxhash", "xxhash_cbor", "builtin"])


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    flag = setting.launch.flag(ALGORITHM_FLAG)
    if not setting.is_vllm or flag is None or not flag.known or flag.value not in _WEAK:
        return
    _, value = seed(setting.launch)
    fixed = value is not None and value != "random"
    yield rule.finding(
        flag.value_location,
        f"`{ALGORITHM_FLAG} {flag.value}` is no cryptographic hash"
        + (f", and its seed {SEED} is a constant in this file" if fixed else ""),
        f"use `{ALGORITHM_FLAG} sha256_cbor`: tenants cannot make its blocks collide, and its "
        "hashes are the same on every replica",
        variable=ALGORITHM_FLAG,
        severity=rule.severity if fixed else Severity.WARNING,
        confidence=rule.confidence if fixed else Confidence.MEDIUM,
    )


RULE = SettingRule(
    id="PFX603",
    name="weak-block-hash",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
