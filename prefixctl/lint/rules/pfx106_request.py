"""A request's own text ahead of shareable text.

## What it finds
The question, retrieved documents, the history or another value of one request, printed ahead of at
least one block of static text. Under a condition it is a warning.

## Why it matters
What stands behind it is different in every request for the cache, although its words are not:
rules, examples and output formats behind a question are computed every time.

## Bad
```jinja
Question: {{ question }}

You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.

Question: {{ question }}
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure
from prefixctl.lint.rule import Reading, Rule, exposed_values


def _advice(_: Exposure) -> str:
    return "put rules, examples and output format first and this value last, in the last user turn"


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.REQUEST}, _advice)


RULE = Rule(
    id="PFX106",
    name="request-in-prefix",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
