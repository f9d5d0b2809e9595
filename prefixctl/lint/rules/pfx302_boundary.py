"""Shared tokens behind the last full block.

## What it finds
A governed prompt on a target whose shared prefix ends half a block or more behind a block boundary.

## Why it matters
The cache keeps whole blocks only: the tokens behind the last full one are computed again for every
request. With large blocks that can be most of a prefix.

## Bad
```text
# 500 shared tokens with block_size: 256: 244 tokens are computed every time
...
```

## Good
```text
# 512 shared tokens with block_size: 256: two full blocks, no tail
...
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.lint.rule import Reading, Rule


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    alignment = reading.alignment
    if reading.document.prompt is None or alignment is None or alignment.full_blocks == 0:
        return
    tail, unit = alignment.tail_tokens, alignment.unit
    if tail * 2 < unit:
        return
    yield Finding(
        rule=rule.id,
        name=rule.name,
        severity=rule.severity,
        confidence=rule.confidence,
        location=Location(path=reading.document.path),
        message=f"{tail:,} of the {alignment.shared_tokens:,} shared tokens stand behind the last "
        f"full block of {unit:,} and are computed for every request",
        advice=f"{unit - tail:,} more static tokens fill the block, or {tail:,} fewer end on it",
        tokens_lost=tail,
    )


RULE = Rule(
    id="PFX302",
    name="boundary-waste",
    severity=Severity.INFO,
    confidence=Confidence.HIGH,
    check=_check,
)
