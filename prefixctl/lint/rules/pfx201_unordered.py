"""An order that is left to the client.

## What it finds
Ahead of static text or of the conversation:

- a mapping from outside whose keys nobody sorts: a loop over `.items()` without `dictsort`, a JSON
  filter of a framework or `json.dumps` without `sort_keys`, `tojson` in a chat template;
- a list of tools, printed or gone through without `sort`: its order is the client's. (Jinja2's own
  `tojson` sorts the keys of each tool, not the list; a model's chat template prints the list as it
  comes, so there only the keys count). A sort by `name` leaves tools of OpenAI's shape as they
  come, for their name stands under `function`: `sort(attribute="function.name")` sorts these;
- a set, or a list that names all things of a kind (`all_tags`, `available_colors`), without `sort`.

## Why it matters
Two clients, or two versions of one client, write the same object in another order. The text is then
another one, and nothing behind it is shared.

## Bad
```jinja
{% for tool in tools %}- {{ tool.name }}: {{ tool.description }}
{% endfor %}
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```

## Good
```jinja
{% for tool in tools | sort(attribute="name") %}- {{ tool.name }}: {{ tool.description }}
{% endfor %}
You answer questions about orders, parcels and returns of an online shop for outdoor goods.
Answer in at most five sentences, in the language of the question, and never invent an order number.
Say which step comes next, and hand over to a person when money or safety is at stake.
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Severity
from prefixctl.lint.evaluate import order
from prefixctl.lint.evaluate.value import CauseKind
from prefixctl.lint.measure import Exposure
from prefixctl.lint.rule import Reading, Rule, exposed_values

_NESTED = (
    'sort the list by the name under `function`: `tools | sort(attribute="function.name")`; or '
    "have all clients send one canonical order"
)
_ADVICE = {
    order.KEYS: "sort the keys: `| dictsort` in a loop, `sort_keys` of the JSON function; or have "
    "one place build the object. In a model's own template: have all clients send one canonical "
    "order",
    order.TOOLS: 'sort the list by name: `tools | sort(attribute="name")`, for tools of OpenAI\'s '
    'shape `tools | sort(attribute="function.name")` (a sort by `name` leaves these as they come); '
    "or have all clients send one canonical order",
    order.FLAT: 'sort the list by name: `tools | sort(attribute="name")`; or have all clients '
    "send one canonical order",
    order.STORE: "sort the list before it is printed: `| sort`",
    order.SET: "sort it before it is printed: `sorted(...)`, `| sort`",
}


def _advice(exposure: Exposure) -> str:
    reason = exposure.hole.cause.reason
    if reason.startswith(order.NESTED):
        return _NESTED
    return _ADVICE.get(reason, _ADVICE[order.KEYS])


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    return exposed_values(rule, reading, {CauseKind.ORDER}, _advice)


RULE = Rule(
    id="PFX201",
    name="unordered-json",
    severity=Severity.WARNING,
    confidence=Confidence.HIGH,
    check=_check,
)
