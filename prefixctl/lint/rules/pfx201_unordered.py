"""JSON whose key order is left to the client.

## What it finds
A value that a client gives (tool schemas above all), printed by `tojson` without `sort_keys=true`
or in a loop over `.items()` without `dictsort`, ahead of static text or of the conversation.

## Why it matters
Two clients, or two versions of one client, write the same object with its keys in another order.
The text is then another one, and nothing behind it is shared.

## Bad
```jinja
{{ tools | tojson }}
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
{{ tools | tojson(sort_keys=true) }}
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
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
        "sort the keys: `tojson(sort_keys=true)`, `| dictsort` in a loop; or have one place "
        "build the object. In a model's own template: have all clients send one canonical "
        "order"
    )


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.ORDER}, _advice)


RULE = Rule(
    id="PFX201",
    name="unordered-json",
    severity=Severity.WARNING,
    confidence=Confidence.HIGH,
    check=_check,
)
