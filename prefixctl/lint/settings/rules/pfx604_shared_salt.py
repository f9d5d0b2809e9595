"""A cache salt that stands in the file.

## What it finds
An environment variable of a launch whose name speaks of a salt and whose value is written in the
file.

## Why it matters
A salt separates tenants only while nobody can guess it. One that lies in a repository is known to
everybody who reads it, is the same on every deployment, and outlives every rotation.

## Bad
```yaml
services:
  chat:
    image: vllm/vllm-openai:v0.32.0
    command: ["--model", "acme/chat-8b", "--enable-prompt-tokens-details"]
    environment:
      GATEWAY_CACHE_SALT: blue-horse
```

## Good
```yaml
services:
  chat:
    image: vllm/vllm-openai:v0.32.0
    command: ["--model", "acme/chat-8b", "--enable-prompt-tokens-details"]
    environment:
      GATEWAY_CACHE_SALT: ${GATEWAY_CACHE_SALT}
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.rule import Setting, SettingRule

_ENDINGS = frozenset(["FILE", "PATH", "ENV", "ENABLED", "HEADER", "NAME", "LENGTH"])


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    for variable in setting.launch.environment:
        words = variable.name.upper().split("_")
        if "SALT" not in words or words[-1] in _ENDINGS or not variable.value:
            continue
        yield rule.finding(
            variable.location,
            f"`{variable.name}` has a fixed value in this file: a salt that others know "
            "separates nobody",
            "take it from a secret, one for each tenant or share group, and rotate it: "
            "prefixctl derives salts from `tenancy.secret_file`",
            variable=variable.name,
        )


RULE = SettingRule(
    id="PFX604",
    name="shared-salt",
    severity=Severity.WARNING,
    confidence=Confidence.MEDIUM,
    check=_check,
)
