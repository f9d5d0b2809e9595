"""A byte order mark at the beginning of a prompt.

## What it finds
A prompt file in UTF-8 that begins with a byte order mark (the bytes `EF BB BF`).

## Why it matters
Most programs read the mark as a character and send it to the model. It is invisible, costs a token,
and makes another prefix of the same text: a service that strips it and one that does not share no
block, and neither does the file once an editor has saved it without.

## Bad
```text
\\xef\\xbb\\xbfYou answer questions about orders, parcels and returns of an online shop.
```

## Good
```text
You answer questions about orders, parcels and returns of an online shop.
```

## Fix
`--fix` removes the mark. UTF-16 needs its own and keeps it.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.lint.raw import RawFile
from prefixctl.lint.rule import Reading, Rule


def _check(_rule: Rule, _reading: Reading) -> Iterator[Finding]:
    return iter(())


def _check_file(rule: Rule, file: RawFile) -> Iterator[Finding]:
    if file.mark == codecs.BOM_UTF8:
        yield Finding(
            rule=rule.id,
            name=rule.name,
            severity=rule.severity,
            confidence=rule.confidence,
            location=Location(path=file.path),
            message="the file begins with a byte order mark, `U+FEFF`, which becomes part of the "
            "prefix where a program does not strip it",
            advice="save the file as UTF-8 without a byte order mark, or run lint with --fix",
            variable="U+FEFF",
        )


RULE = Rule(
    id="PFX303",
    name="byte-order-mark",
    severity=Severity.INFO,
    confidence=Confidence.HIGH,
    check=_check,
    check_file=_check_file,
)
