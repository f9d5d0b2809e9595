"""A suppression that suppresses nothing, or gives no reason.

## What it finds
A comment `prefixctl: allow ...` whose rule finds nothing there, or that names no rule that exists,
or an `allow-file` that does not stand at the top (warnings); one without a reason (info).

A suppression names one rule or several, by id or by name, and then says why:

- `{# prefixctl: allow PFX101 the day is part of the product #}` in a Jinja2 template,
- `# prefixctl: allow PFX103, PFX105 one prompt per user on purpose` in YAML, TOML, Python and plain
  text; `// prefixctl: allow ...` in the languages that write comments so.

It stands on the line of the finding, or alone on the line above. For a string of several lines in
YAML or source code it may stand on the line where the string begins, or above that.
`prefixctl: allow-file PFX101 why` in the first ten lines holds for the whole file. In plain text
the comment is part of the prompt. A file that cannot be read (PFX000) cannot be allowed.

## Why it matters
A comment that outlives its finding hides the next one. A reason tells the next reader whether the
finding was judged or silenced.

## Bad
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
{# prefixctl: allow PFX101 the day is part of the product #}
Answer in at most five sentences, in the language of the question, and never invent an order number.
```

## Good
```jinja
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.rule import Reading, Rule


def _check(_rule: Rule, _reading: Reading) -> Iterator[Finding]:
    """Nothing: whether a suppression was used is known once all rules have run."""
    return iter(())


RULE = Rule(
    id="PFX001",
    name="unused-suppression",
    severity=Severity.WARNING,
    confidence=Confidence.HIGH,
    check=_check,
)
