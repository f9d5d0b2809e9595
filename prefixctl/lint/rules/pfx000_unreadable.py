"""A file that cannot be read.

## What it finds
A file whose encoding is not certain (UTF-8, UTF-16, UTF-32 and GBK are read where there is no
doubt), a template, JSON or YAML file that cannot be parsed, one that is nested too deeply or takes
too long to read, or a named file of a kind that is not read.

## Why it matters
A file that was not read was not checked. It is never a clean pass: lint exits 3.

## Bad
```jinja
{% if premium %}Answer at once.
```

## Good
```jinja
{% if premium %}Answer at once.{% endif %}
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.rule import Reading, Rule


def _check(_rule: Rule, _reading: Reading) -> Iterator[Finding]:
    """Nothing: a document that reached the rules was read."""
    return iter(())


RULE = Rule(
    id="PFX000",
    name="unreadable-file",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
