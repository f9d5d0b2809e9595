"""The conclusions on the chat templates of a file, and all of them as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefixctl.lint.chat.advice import COLUMNS, rows
from prefixctl.lint.chat.behaviour import ChatBehaviour, Continuation

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReport:
    """What one chat template does.

    Attributes:
        path: Its file.
        name: Its name in the file.
        behaviour: The conclusions.
    """

    path: str
    name: str
    behaviour: ChatBehaviour


def to_json(reports: tuple[TemplateReport, ...]) -> dict[str, Any]:
    """The reports as one JSON document."""
    return {"schema": SCHEMA, "templates": [_template(r) for r in reports]}


def _template(report: TemplateReport) -> dict[str, Any]:
    behaviour = report.behaviour
    return {
        "path": report.path,
        "name": report.name,
        "breaks": behaviour.breaks,
        **{name: getattr(behaviour, name) for name in COLUMNS},
        "needs_tools": behaviour.needs_tools,
        "clock_formats": list(behaviour.clock_formats),
        "turns": [_continuation(t) for t in behaviour.turns],
        "tool_turn": behaviour.tool_turn and _continuation(behaviour.tool_turn),
        "refusals": [{"field": r.field, "message": r.message} for r in behaviour.refusals],
        "advice": [
            {"field": r.name, "verdict": r.verdict.value, "advice": r.advice}
            for r in rows(behaviour)
            if r.advice
        ],
    }


def _continuation(turn: Continuation) -> dict[str, Any]:
    return {
        "shared_chars": turn.shared_chars,
        "turn_chars": turn.turn_chars,
        "opened_chars": turn.opened_chars,
        "content_chars": turn.content_chars,
        "kind": turn.kind.value,
    }
