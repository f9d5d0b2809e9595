"""A tenant's value ahead of shareable text.

## What it finds
The name or another value of a tenant, an organisation, a company, printed ahead of at least one
block of static text; or a condition on one.

## Why it matters
The text behind it is shared within a tenant but not between tenants. With many small tenants that
is nearly no sharing at all; with a few large ones it may be wanted.

## Bad
```jinja
You work for {{ company_name }}.
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
You work for {{ company_name }}.
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
        "put what all tenants share first and the tenant's own section behind it, or what the "
        "tenant needs into the first user turn"
    )


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.TENANT}, _advice)


RULE = Rule(
    id="PFX104",
    name="tenant-in-prefix",
    severity=Severity.WARNING,
    confidence=Confidence.HIGH,
    check=_check,
)
