"""A session's value ahead of shareable text.

## What it finds
A session or conversation id, a working directory, a repository or another value of one session,
printed ahead of at least one block of static text. Under a condition it is a warning.

## Why it matters
Every new session computes the text behind it again, even for the same user.

## Bad
```jinja
Session {{ session_id }}
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
Session {{ session_id }}
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
        "move it behind the static text: into a later section or the first user turn; an id "
        "that the model does not need belongs in a header"
    )


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.SESSION}, _advice)


RULE = Rule(
    id="PFX105",
    name="session-in-prefix",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
