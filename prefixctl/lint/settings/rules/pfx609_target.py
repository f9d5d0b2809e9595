"""A start that is not what the target says.

## What it finds
A start of a target's model whose KV data type, chat template, revision, data type, block size,
hash algorithm or hash seed differs from the target in prefixctl.yaml. What the file leaves open is
not compared.

## Why it matters
The lock's token counts and keys hold for the target. Another chat template or data type gives
other KV values under the same name: warm-ups warm the wrong text, and versions that look alike are
not. Another hash algorithm, seed or block size gives other block hashes, so what should be
resident cannot be compared with what is.

## Bad
```bash
vllm serve acme/chat-8b --enable-prompt-tokens-details --prefix-caching-hash-algo sha256_cbor \\
  --chat-template templates/chat.jinja --kv-cache-dtype fp8
```

## Good
```bash
vllm serve acme/chat-8b --enable-prompt-tokens-details --prefix-caching-hash-algo sha256_cbor \\
  --chat-template templates/chat.jinja
```
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from prefixctl.config import TargetConfig
from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.lint.settings.rule import (
    ALGORITHM_FLAG,
    BLOCK_FLAGS,
    SEED,
    Expected,
    Setting,
    SettingRule,
    algorithm,
    block_size,
    seed,
)
from prefixctl.sources.settings.launch import Launch

_AUTO = "auto"
_ALIASES = {"fp8_e4m3": "fp8", "half": "float16", "bf16": "bfloat16", "fp16": "float16"}
_NONE = "the default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """One setting as the start and as the target have it."""

    name: str
    key: str
    given: str
    expected: str
    location: Location
    written: bool
    severity: Severity = Severity.ERROR


def _check(rule: SettingRule, setting: Setting) -> Iterator[Finding]:
    target = setting.target
    if target is None:
        return
    pairs = [*_values(setting.launch, target.settings)]
    if setting.is_vllm:
        pairs += _hashes(setting.launch, target.settings)
    for pair in pairs:
        yield _finding(rule, pair, target)


def _finding(rule: SettingRule, pair: _Pair, target: Expected) -> Finding:
    return rule.finding(
        pair.location,
        f"`{pair.name}` is {pair.given} here, and {pair.expected} in target '{target.name}'",
        f"make them the same: change the start, or targets.{target.name}.{pair.key} and bump",
        variable=pair.name,
        severity=pair.severity,
        confidence=rule.confidence if pair.written else Confidence.MEDIUM,
    )


def _values(launch: Launch, target: TargetConfig) -> Iterator[_Pair]:
    """Settings that change KV values."""
    kv = _flag(launch, ("--kv-cache-dtype",), _AUTO)
    weights = _flag(launch, ("--dtype",), _AUTO)
    if kv is not None and _differ(kv, target.kv_dtype, other=target.dtype):
        yield _pair(launch, "--kv-cache-dtype", "kv_dtype", kv, target.kv_dtype)
    named = weights is not None and _AUTO not in {weights, target.dtype}
    if named and _differ(weights or "", target.dtype, other=None):
        yield _pair(launch, "--dtype", "dtype", weights or "", target.dtype)
    revision = _flag(launch, ("--revision",), None)
    if revision is not None and revision != (target.revision or ""):
        yield _pair(launch, "--revision", "revision", revision, target.revision)
    template = _flag(launch, ("--chat-template",), "")
    wanted = posixpath.basename(target.chat_template or "")
    if template is not None and posixpath.basename(template) != wanted:
        yield _pair(launch, "--chat-template", "chat_template", template, target.chat_template)


def _hashes(launch: Launch, target: TargetConfig) -> Iterator[_Pair]:
    """Settings that change block hashes only."""
    size = block_size(launch)
    if size is not None and size != target.block_size:
        yield _pair(launch, BLOCK_FLAGS[0], "block_size", str(size), str(target.block_size))
    used = algorithm(launch)
    if used is not None and used != target.hash_algorithm:
        yield _pair(launch, ALGORITHM_FLAG, "hash_algorithm", used, target.hash_algorithm)
    settled, value = seed(launch)
    if settled and value != target.hash_seed:
        variable = launch.variable(SEED)
        yield _Pair(
            name=SEED,
            key="hash_seed",
            given=value or "not set",
            expected=target.hash_seed or "not set",
            location=variable.location if variable else launch.location,
            written=variable is not None,
            severity=Severity.WARNING,
        )


def _flag(launch: Launch, names: tuple[str, ...], default: str | None) -> str | None:
    """The value, the default if it is not given, None if the file leaves it open."""
    if launch.flag(*names) is not None:
        return launch.value(*names)
    return None if launch.is_open else default


def _differ(given: str, expected: str, *, other: str | None) -> bool:
    """Whether two data types differ; ``auto`` is the same as the type that it follows."""
    one, two = _ALIASES.get(given, given), _ALIASES.get(expected, expected)
    if one == two:
        return False
    if _AUTO in {one, two}:
        named = two if one == _AUTO else one
        return named.startswith("fp8") or other not in {named, _AUTO}
    return True


def _pair(launch: Launch, name: str, key: str, given: str, expected: str | None) -> _Pair:
    flag = launch.flag(*(BLOCK_FLAGS if name in BLOCK_FLAGS else (name,)))
    hashes = key in {"block_size", "hash_algorithm"}
    return _Pair(
        name=name,
        key=key,
        given=given or _NONE,
        expected=expected or _NONE,
        location=flag.value_location if flag else launch.location,
        written=flag is not None,
        severity=Severity.WARNING if hashes else Severity.ERROR,
    )


RULE = SettingRule(
    id="PFX609",
    name="differs-from-target",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
