"""A deployment's value ahead of shareable text.

## What it finds
A host, a region, an environment, a path or the name of an agent, printed ahead of at least one
block of static text; or a condition on one.

## Why it matters
Servers or agents with another value do not share the text behind it. Within one deployment nothing
is lost, so this is a remark.

## Bad
```jinja
Region: {{ region }}
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
Region: {{ region }}
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure
from prefixctl.lint.rule import Reading, Rule, exposed_values


def _advice(_: Exposure) -> str:
    return (
        "put what all deployments share first; give one spelling of the value to all replicas"
        " that share a cache"
    )


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.DEPLOYMENT}, _advice)


RULE = Rule(
    id="PFX107",
    name="deployment-in-prefix",
    severity=Severity.INFO,
    confidence=Confidence.HIGH,
    check=_check,
)
