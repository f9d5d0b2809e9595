"""Personal data in the text of a prompt.

## What it finds
A card, account, identity or social security number with a right check digit, or a phone number or
e-mail address that the words around it call private, written into the text of a prompt. The samples
of standards and vendors are passed over. A person's data that a variable prints is PFX103.

## Why it matters
The text of a prompt is the part that all users share: everybody's requests carry this person's
data, and anybody can ask the model for it.

## Bad
```text
Pay back to the account DE02 1203 0000 0000 2020 51 only.
```

## Good
```text
Pay back to the account that the order was paid from.
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.evaluate.value import Site
from prefixctl.lint.private import find_personal_data, hidden
from prefixctl.lint.rule import Reading, Rule


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    for block in reading.document.blocks:
        if block.value is not None:
            continue
        for found in find_personal_data(block.text):
            text = hidden(block.text[found.start : found.end])
            yield Finding(
                rule=rule.id,
                name=rule.name,
                severity=rule.severity,
                confidence=rule.confidence,
                location=block.locate(Site(1, offset=found.start)),
                message=f"`{text}` is {found.what}, in the text that all users share",
                advice="take it out of the prompt; where one person's request needs it, send it in "
                "that request's last user turn",
                variable=text,
            )


RULE = Rule(
    id="PFX402",
    name="personal-data-in-prompt",
    severity=Severity.WARNING,
    confidence=Confidence.MEDIUM,
    check=_check,
)
