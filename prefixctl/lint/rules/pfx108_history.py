"""A chat template that rewrites earlier turns.

## What it finds
System text or tools that a chat template prints at the last turn instead of the first: they move
when a turn is added. That is shown by rendering conversations in a sandbox; where a template cannot
be rendered, its text alone is judged, with less confidence. Reasoning that is dropped from earlier
turns is a warning.

## Why it matters
Turn n+1 then does not start with the tokens of turn n. With moving system text nothing of a
conversation is found again; with dropped reasoning the hit ends at the last user turn.

## Bad
```jinja
{%- for message in messages %}
{%- if loop.last %}[INST] {{ messages[0]['content'] }} {{ message['content'] }}[/INST]
{%- else %}[INST] {{ message['content'] }}[/INST]{% endif %}
{%- endfor %}{{ eos_token }}
```

## Good
```jinja
{{ messages[0]['content'] }}
{%- for message in messages[1:] %}[INST] {{ message['content'] }}[/INST]
{%- endfor %}{{ eos_token }}
```
"""

from __future__ import annotations

from collections.abc import Iterator

from prefixctl.core.findings import Confidence, Finding, Location, Severity, Verdict
from prefixctl.lint.chat.confirm import shown as rendered
from prefixctl.lint.measure import Exposure
from prefixctl.lint.rule import Reading, Rule, shown
from prefixctl.lint.verdict import severity_of, verdict_of


def _check(rule: Rule, reading: Reading) -> Iterator[Finding]:
    seen: set[tuple[str, Verdict]] = set()
    for exposure in reading.measure.exposures:
        verdict = verdict_of(exposure, reading.block_size)
        key = (shown(exposure).split(".")[0], verdict)
        if exposure.moved_by is None or key in seen:
            continue
        seen.add(key)
        shown_by = rendered(exposure, reading.behaviour)
        yield Finding(
            rule=rule.id,
            name=rule.name,
            severity=severity_of(exposure, reading.block_size),
            confidence=shown_by.confidence,
            location=_condition(reading, exposure),
            message=f"`{shown(exposure)}` is printed by where its turn stands from the end, so the "
            f"text of earlier turns changes when a turn is added{shown_by.evidence}",
            advice=_advice(verdict),
            variable=shown(exposure),
        )


def _condition(reading: Reading, exposure: Exposure) -> Location:
    hole = exposure.moved_by or exposure.hole
    return reading.document.blocks[exposure.hole.block].locate(hole.origin)


def _advice(verdict: Verdict) -> str:
    if verdict is Verdict.BREAK:
        return "print system text and tools once, ahead of the first turn"
    return (
        "keep the reasoning of earlier turns if the model allows it, or count on a hit up to "
        "the last user turn only"
    )


RULE = Rule(
    id="PFX108",
    name="moving-history",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    check=_check,
)
