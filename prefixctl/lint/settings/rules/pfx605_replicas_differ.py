"""Replicas of one model whose block hashes cannot agree.

## What it finds
Two starts of one model in the files given, with another hash algorithm, hash seed, block size or
KV data type. Stages of a Dockerfile are alternatives and are not compared; starts in two files may
be two environments, so that is only a remark.

## Why it matters
A router that sends a request to where its prefix lies, a shared tier and an event stream all meet
in the block hash. Replicas that compute it in different ways never recognise each other's blocks,
and a prefix that fits one of them may not fit the other.

## Bad
```yaml
services:
  chat-1:
    image: vllm/vllm-openai:v0.32.0
    command: --model acme/chat-8b --block-size 16 --enable-prompt-tokens-details
  chat-2:
    image: vllm/vllm-openai:v0.32.0
    command: --model acme/chat-8b --block-size 32 --enable-prompt-tokens-details
```

## Good
```yaml
services:
  chat-1:
    image: vllm/vllm-openai:v0.32.0
    command: --model acme/chat-8b --block-size 16 --enable-prompt-tokens-details
  chat-2:
    image: vllm/vllm-openai:v0.32.0
    command: --model acme/chat-8b --block-size 16 --enable-prompt-tokens-details
```
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.lint.settings.rule import (
    ALGORITHM_FLAG,
    BLOCK_FLAGS,
    SEED,
    Setting,
    SettingRule,
    algorithm,
    seed,
)
from prefixctl.sources.settings.launch import Launch

_UNSET = "not set"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What a launch chose for one setting; None if the file leaves it open."""

    name: str
    value: str | None
    location: Location


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    launch = setting.launch
    if launch.model is None or setting.format == "dockerfile":
        return
    first = next(
        (o for o in setting.others if o.model == launch.model and o.engine is launch.engine), None
    )
    if first is None:
        return
    near = first.location.path == launch.location.path
    for one, other in zip(_choices(first), _choices(launch), strict=True):
        if one.value is None or other.value is None or one.value == other.value:
            continue
        yield rule.finding(
            other.location,
            f"`{other.name}` is {other.value} here and {one.value} in "
            f"{first.name} ({one.location.path}:{one.location.line}), of the same model",
            "give all replicas of a model the same value; prefixctl serve --print shows the "
            "arguments of a target",
            variable=other.name,
            severity=rule.severity if near else Severity.INFO,
            confidence=rule.confidence if near else Confidence.LOW,
        )


def _choices(launch: Launch) -> Iterator[_Choice]:
    yield _flag(launch, BLOCK_FLAGS, None)
    yield _flag(launch, ("--kv-cache-dtype",), "auto")
    yield _Choice(
        name=ALGORITHM_FLAG,
        value=algorithm(launch),
        location=_place(launch, ALGORITHM_FLAG),
    )
    settled, value = seed(launch)
    variable = launch.variable(SEED)
    yield _Choice(
        name=SEED,
        value=(value or _UNSET) if settled else None,
        location=variable.location if variable else launch.location,
    )


def _flag(launch: Launch, names: tuple[str, ...], default: str | None) -> _Choice:
    flag = launch.flag(*names)
    value = launch.value(*names)
    if flag is None and not launch.is_open:
        value = default
    return _Choice(
        name=flag.name if flag else names[0], value=value, location=_place(launch, *names)
    )


def _place(launch: Launch, *names: str) -> Location:
    flag = launch.flag(*names)
    return flag.value_location if flag else launch.location


RULE = SettingRule(
    id="PFX605",
    name="replicas-differ",
    severity=Severity.WARNING,
    confidence=Confidence.MEDIUM,
    check=_check,
)
