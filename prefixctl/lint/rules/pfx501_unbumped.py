"""Content that changed without a bump.

## What it finds
A governed prompt whose content is not that of its last version in `prefixes.lock.yaml`.

## Why it matters
A changed prefix is a cold prefix: the hit rate of its traffic falls to zero until it is computed
again. A version makes that a planned step, with a warm-up before the switch.

## Bad
```sh
# system.md was edited, prefixes.lock.yaml was not
prefixctl lint templates/
```

## Good
```sh
prefixctl bump support-agent --reason 'new return period'
prefixctl lint templates/
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Location, Severity
from prefixctl.lint.rule import Reading, Rule


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    prompt = reading.document.prompt
    if prompt is None or reading.unbumped is None:
        return
    changed = reading.unbumped(prompt)
    if changed is not None:
        yield Finding(
            rule=rule.id,
            name=rule.name,
            severity=rule.severity,
            confidence=rule.confidence,
            location=Location(path=reading.document.path),
            message=f"`{prompt.name}` changed without a new version: {changed}",
            advice=f"run `prefixctl bump {prompt.name}`, so that the new prefix is computed before "
            "users need it",
        )


RULE = Rule(
    id="PFX501",
    name="unbumped-change",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
