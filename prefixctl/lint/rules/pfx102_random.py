"""A random value ahead of shareable text.

## What it finds
A uuid, nonce, request id or trace id, or the output of a random function or filter (`uuid4()`,
`| random`, `| shuffle`), printed ahead of at least one block of static text.

## Why it matters
It is new in every request, so no block behind it is ever found in the cache. It is mostly there
for logs, which the model does not read.

## Bad
```jinja
Request {{ request_id }}
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
Request {{ request_id }}
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure
from prefixctl.lint.rule import Reading, Rule, exposed_values


def _advice(exposure: Exposure) -> str:
    if any(word in exposure.hole.cause.variable for word in ("random", "shuffle", "sample")):
        return (
            "take the same one every time, or draw it in the last user turn, behind the static "
            "text; a list that is shuffled is sorted instead"
        )
    return (
        "send it as a header or as metadata; if the model has to see it, move it into the last "
        "user turn"
    )


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.RANDOM}, _advice)


RULE = Rule(
    id="PFX102",
    name="random-in-prefix",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
