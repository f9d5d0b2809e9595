"""A shared prefix shorter than one block.

## What it finds
A governed prompt whose shared prefix has fewer tokens than one cache block of the target.

## Why it matters
The cache keeps whole blocks only. A prefix below one block is never found, however often it is
sent.

## Bad
```text
# system.md, 7 tokens, on a target with block_size: 16
You are a friendly shop assistant.
```

## Good
```text
# system.md, 16 tokens or more
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.lint.rule import Reading, Rule


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    if reading.document.prompt is None:
        return
    if reading.alignment is not None:
        shared, unit = reading.alignment.shared_tokens, reading.alignment.unit
        count = f"{shared:,} tokens"
    elif reading.block_size_known:
        shared, unit = reading.measure.prefix_tokens, reading.block_size
        count = reading.tokens(shared)
    else:
        return
    if shared < unit:
        yield Finding(
            rule=rule.id,
            name=rule.name,
            severity=rule.severity,
            confidence=rule.confidence,
            location=Location(path=reading.document.path),
            message=f"the shared prefix has {count}, fewer than one block of {unit:,} tokens, so "
            "no request will ever hit",
            advice="move static text ahead of the first value that changes, join short prompts "
            "into one longer prefix, or leave this prompt ungoverned",
        )


RULE = Rule(
    id="PFX301",
    name="prefix-below-one-block",
    severity=Severity.INFO,
    confidence=Confidence.HIGH,
    check=_check,
)
