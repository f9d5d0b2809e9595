"""The conversations with which a chat template is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from prefixctl.prompts.sandbox import Render

SYSTEM = "Serves the mountain rescue desk, and answers in one plain sentence."
QUESTIONS = (
    "Which hut is open tonight?",
    "How far is it from the lake?",
    "Is the path marked all the way?",
    "Who keeps the key?",
)
OTHER_QUESTION = "May a dog stay over?"
ANSWERS = ("The upper one is.", "About two hours.", "Yes, in red and white.")
REASONING = "pondering-quietly-upon-huts"
PADDING = ("\n  ", "  \n")
"""White space put around the system text."""
BOS = "[[bos]]"
SPECIAL_TOKENS: Mapping[str, str] = {
    "bos_token": BOS,
    "eos_token": "[[eos]]",
    "unk_token": "[[unk]]",
    "pad_token": "[[pad]]",
    "sep_token": "[[sep]]",
    "cls_token": "[[cls]]",
    "mask_token": "[[mask]]",
}

START = datetime(2025, 12, 31, 10, 20, 11)
"""Late in a year, so that a clock which shows only the month or the year moves with the day."""
LATER = {
    "second": START + timedelta(seconds=37),
    "minute": START + timedelta(minutes=9),
    "day": START + timedelta(days=1, hours=3),
}
"""Times that only a clock of that resolution, or a finer one, tells from the start."""


def _tool(name: str, description: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    properties = {n: {"type": "string", "description": d} for n, d in parameters.items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(parameters),
            },
        },
    }


TOOLS = (
    _tool(
        "find_shelter",
        "Looks for a roof near a place.",
        {"valley": "Where to look.", "beds": "How many are needed."},
    ),
    _tool(
        "read_barometer",
        "Tells the pressure at a station.",
        {"station": "Its short name.", "unit": "For example hPa."},
    ),
)
TOOL_MARKS = (
    "find_shelter",
    "read_barometer",
    "Looks for a roof near a place.",
    "Tells the pressure at a station.",
    "valley",
    "station",
    "Where to look.",
    "Its short name.",
)
"""Words of the tool schemas that no message holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of conversation that a template takes.

    Attributes:
        system: With a system message.
        parts: With every content as a list of parts.
        absent: With tools and documents left out where there are none; a server passes None.
    """

    system: bool = True
    parts: bool = False
    absent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One request.

    Attributes:
        turns: User turns; all but the last are answered.
        system: The system text, where the form has one.
        first: The first question.
        answer: What is added to the first answer's message.
        answered: Whether the last turn is answered, too.
        opened: Whether the assistant's answer is opened.
        tools: Tool schemas.
        now: The time.
    """

    turns: int = 1
    system: str = SYSTEM
    first: str = QUESTIONS[0]
    answer: Mapping[str, str] | None = None
    answered: bool = False
    opened: bool = True
    tools: Sequence[Mapping[str, Any]] | None = None
    now: datetime = START

    def render(self, form: Form) -> Render:
        """The request in a form."""
        messages = [{"role": "system", "content": self.system}] if form.system else []
        for index in range(self.turns):
            question = QUESTIONS[index] if index else self.first
            messages.append({"role": "user", "content": question})
            if index + 1 < self.turns or self.answered:
                answer = {"role": "assistant", "content": ANSWERS[index]}
                messages.append({**answer, **(self.answer or {})} if index == 0 else answer)
        values = {
            **SPECIAL_TOKENS,
            "messages": [_in_parts(m) if form.parts else m for m in messages],
            "add_generation_prompt": self.opened,
        }
        if not form.absent:
            values |= {"tools": None, "documents": None}
        if self.tools is not None:
            values["tools"] = list(self.tools)
        return Render(values=values, now=self.now)


def reordered(value: Any) -> Any:
    """The same value with the keys of every object in the opposite order."""
    if isinstance(value, Mapping):
        return {k: reordered(value[k]) for k in reversed(list(value))}
    return [reordered(v) for v in value] if isinstance(value, (list, tuple)) else value


def _in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}
