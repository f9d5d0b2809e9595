"""The server does not report cached tokens.

## What it finds
vLLM started without `--enable-prompt-tokens-details`, SGLang without `--enable-cache-report`. A
start that takes arguments from outside the file is passed over.

## Why it matters
Without `prompt_tokens_details.cached_tokens` in the answers nobody can tell a hit from a miss by
request: warm-ups cannot be verified, isolation can only be probed by timing, and hit rates per
prompt or tenant stay unknown.

## Bad
```bash
vllm serve acme/chat-8b --max-model-len 16384
```

## Good
```bash
vllm serve acme/chat-8b --max-model-len 16384 --enable-prompt-tokens-details
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.rule import Setting, SettingRule
from prefixctl.sources.settings.launch import Engine

_FLAGS = {
    Engine.VLLM: "--enable-prompt-tokens-details",
    Engine.SGLANG: "--enable-cache-report",
}


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    launch = setting.launch
    wanted = _FLAGS.get(launch.engine)
    if wanted is None or launch.is_open or launch.flag(wanted) is not None:
        return
    yield rule.finding(
        launch.location,
        f"`{wanted}` is missing, so answers do not say how many prompt tokens came from the cache",
        f"add `{wanted}`: warm-ups and audits read cached tokens from the usage of an answer",
        variable=wanted,
    )


RULE = SettingRule(
    id="PFX602",
    name="cached-tokens-unreported",
    severity=Severity.WARNING,
    confidence=Confidence.HIGH,
    check=_check,
)
