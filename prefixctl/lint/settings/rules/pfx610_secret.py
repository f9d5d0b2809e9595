"""A secret on the command line, or written in the file.

## What it finds
`--api-key`, `--admin-api-key` and other arguments that carry a key, token or password: an error
with the value in the file, a warning if a variable brings it. Environment variables of that kind
with a value in the file are a warning. The value is never shown.

## Why it matters
Every user of the host reads arguments in the list of processes, and they end up in logs, in crash
reports and in the description of a pod. What lies in a repository is known to all who can read it,
and stays in its history.

## Bad
```bash
vllm serve acme/chat-8b --enable-prompt-tokens-details --api-key 7f3e5b1a9d204c6e
```

## Good
```bash
export VLLM_API_KEY="$(cat /run/secrets/vllm_api_key)"
vllm serve acme/chat-8b --enable-prompt-tokens-details
```
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.settings.rule import Setting, SettingRule
from prefixctl.sources.settings.launch import Launch

_FLAG = re.compile(r"--(?:[\w-]+-)?(?:api-key|token|password|secret)")
_VARIABLE = re.compile(r"(?:.*_)?(?:API_KEY|TOKEN|SECRET|PASSWORD|SECRET_KEY|ACCESS_KEY)")
_NO_SECRETS = frozenset(["", "empty", "none", "null", "dummy", "true", "false", "0", "1"])
_PLACEHOLDER = re.compile(r"<.*>|\*+|x{3,}|(?:your|my)[-_ ].*|change[-_]?me", re.IGNORECASE)


def secret_values(launch: Launch) -> Iterator[str]:
    """The values that must not be shown."""
    for flag in launch.flags:
        if _FLAG.fullmatch(flag.name) and flag.value and flag.known:
            yield flag.value
    for variable in launch.environment:
        name = variable.name.upper()
        if variable.value and (_VARIABLE.fullmatch(name) or "SALT" in name.split("_")):
            yield variable.value


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    for flag in setting.launch.flags:
        if not _FLAG.fullmatch(flag.name) or not flag.value or _is_none(flag.value):
            continue
        yield rule.finding(
            flag.location,
            f"`{flag.name}` puts a secret on the command line"
            + (", and its value stands in this file" if flag.known else ""),
            "give it in the environment (VLLM_API_KEY) from a secret or a file",
            variable=flag.name,
            severity=rule.severity if flag.known else Severity.WARNING,
            confidence=rule.confidence if flag.known else Confidence.MEDIUM,
        )
    for variable in setting.launch.environment:
        if not _VARIABLE.fullmatch(variable.name.upper()) or _is_none(variable.value or ""):
            continue
        yield rule.finding(
            variable.location,
            f"the value of `{variable.name}` stands in this file",
            "take it from a secret: `secretKeyRef`, `env_file` outside the repository, or the "
            "caller's environment",
            variable=variable.name,
            severity=Severity.WARNING,
        )


def _is_none(value: str) -> bool:
    return value.lower() in _NO_SECRETS or bool(_PLACEHOLDER.fullmatch(value))


RULE = SettingRule(
    id="PFX610",
    name="secret-in-settings",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
