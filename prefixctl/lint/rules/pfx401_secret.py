"""A secret in a prompt.

## What it finds
A key, a password or a token that is written into the text (by the form that its issuer gives it, or
behind a word such as `password:`), or printed by a variable that is named as one. Placeholders and
the samples of documentation are passed over.

## Why it matters
A prompt is stored, logged, shown to the model and kept in a cache that others share. Whoever can
make the model repeat its instructions has the secret, and so has whoever reads the cache's files.

## Bad
```jinja
Search the orders with the password {{ db_password }}.
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
```

## Good
```jinja
Search the orders with the tool `search_orders`, which signs in by itself.
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.lint.evaluate.value import Site
from prefixctl.lint.private import find_secrets, hidden, names_a_secret
from prefixctl.lint.rule import Reading, Rule, place_of, shown

_ADVICE = (
    "take it out of the prompt and change it: let the tool that needs it read it from its own "
    "environment; the model needs no secrets"
)


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    for block in reading.document.blocks:
        if block.value is not None:
            continue
        for secret in find_secrets(block.text):
            place = block.locate(Site(1, offset=secret.start))
            text = hidden(block.text[secret.start : secret.end])
            yield _finding(
                rule, place, text, f"`{text}` is {secret.what} in the text of the prompt"
            )
    seen: set[str] = set()
    for exposure in reading.measure.exposures:
        name = shown(exposure)
        computed = name.endswith("()")
        if exposure.condition or computed or name in seen or not names_a_secret(name):
            continue
        seen.add(name)
        place = place_of(reading, exposure)
        yield _finding(
            rule, place, name, f"`{name}` is printed, and its name says that it is secret"
        )


def _finding(rule: Rule, place: Location, variable: str, message: str) -> Finding:
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=rule.severity,
        confidence=rule.confidence,
        location=place,
        message=message,
        advice=_ADVICE,
        variable=variable,
    )


RULE = Rule(
    id="PFX401",
    name="secret-in-prompt",
    severity=Severity.ERROR,
    confidence=Confidence.MEDIUM,
    check=_check,
)
