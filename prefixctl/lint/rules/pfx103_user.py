"""A user's value ahead of shareable text.

## What it finds
A name, an e-mail address, a profile or another value of one user, printed ahead of at least one
block of static text. Under a condition it is a warning.

## Why it matters
Every user computes and stores the text behind it for himself: the same instructions lie in the
cache once for each user, and the first request of each is a miss.

## Bad
```jinja
You are talking to {{ user.first_name }}.
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
You are talking to {{ user.first_name }}.
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
        "move it behind the static text: into a later section or the first lines of the last "
        "user turn"
    )


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.USER}, _advice)


RULE = Rule(
    id="PFX103",
    name="user-in-prefix",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
