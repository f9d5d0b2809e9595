"""A clock ahead of shareable text.

## What it finds
A value read from a clock (a variable such as `now` or `current_date`, `strftime_now(...)`,
`datetime.now()`) that is printed ahead of at least one block of static text, or ahead of the
conversation in a chat template. The resolution is read from the format: seconds and minutes are an
error, hours and days a warning.

## Why it matters
The cache finds a prefix only as far as it is the same. Behind a clock of seconds nothing is ever
found again; behind a date everything is computed anew at midnight, for all users at once, and twice
where servers stand in two time zones.

## Bad
```jinja
Now: {{ current_datetime }}
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
Now: {{ current_datetime }}
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure
from prefixctl.lint.rule import Reading, Rule, exposed_values


def _advice(exposure: Exposure) -> str:
    cause = exposure.hole.cause
    if cause.passable is not None:
        return (
            f"pass chat_template_kwargs.{cause.passable} with a fixed value, so that the template "
            "does not read the clock; where the model needs the time, say it in the last user turn"
        )
    if exposure.before_conversation:
        return (
            "keep the clock out of the template; where the model needs the time, say it in the "
            "last user turn"
        )
    place = "move it behind the static text: into a later section or the last user turn"
    if cause.volatility in {Volatility.SECOND, Volatility.MINUTE}:
        return f"{place}; or print a coarser clock, the date alone (%Y-%m-%d)"
    return place


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.CLOCK}, _advice)


RULE = Rule(
    id="PFX101",
    name="clock-in-prefix",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
