"""Prefix caching is switched off.

## What it finds
vLLM started with `--no-enable-prefix-caching`, SGLang with `--disable-radix-cache`; a values file
of the vLLM production stack whose `vllmConfig` lacks `enablePrefixCaching: true`, since that chart
then passes the switch by itself.

## Why it matters
No request reuses the work of another. Every governed prefix, every warm-up and every turn of a
conversation is computed again in full, whatever the prompts look like.

## Bad
```bash
vllm serve acme/chat-8b --no-enable-prefix-caching --enable-prompt-tokens-details
```

## Good
```bash
vllm serve acme/chat-8b --enable-prefix-caching --enable-prompt-tokens-details
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.rule import Setting, SettingRule
from prefixctl.sources.settings.launch import Engine, Flag

_FLAGS = {
    Engine.VLLM: ("--no-enable-prefix-caching", "--enable-prefix-caching"),
    Engine.SGLANG: ("--disable-radix-cache", ""),
}


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    flag = setting.launch.flag(*_FLAGS.get(setting.launch.engine, ()))
    if flag is None or not _is_off(flag, setting.launch.engine):
        return
    why = f" ({flag.implied_by})" if flag.implied_by else ""
    yield rule.finding(
        flag.location,
        f"`{flag.name}` switches prefix caching off{why}: nothing is reused between requests",
        "set `enablePrefixCaching: true`"
        if flag.implied_by
        else "take the switch out; prefix caching is on by default",
        variable=flag.name,
    )


def _is_off(flag: Flag, engine: Engine) -> bool:
    """The name that switches off, or the other one with the value false."""
    switched = flag.name == _FLAGS[engine][0]
    return switched is not ((flag.value or "").lower() == "false")


RULE = SettingRule(
    id="PFX601",
    name="prefix-caching-off",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
