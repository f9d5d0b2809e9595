"""A small governed prompt for tests."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = (
    "You are a careful assistant of an online shop. Answer in short sentences and never guess. "
    "If an order is late, look it up before you promise anything. Refunds need a receipt. "
    "Be kind, name the next step, and say when a person will call back. "
)
PROMPT_YAML = """\
description: A support agent.
sections:
  - kind: system_prompt
    file: system.md
  - kind: tools
    file: tools.json
  - kind: few_shot
    file: few_shot.yaml
  - kind: user
    file: user.md.j2
parameters:
  question: {scope: request, examples: ["Where is my order?", "Can I return this?"]}
"""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "order_status",
            "description": "Look up an order",
            "parameters": {"type": "object", "properties": {"order": {"type": "string"}}},
        },
    }
]


def write_prompt(folder: Path) -> None:
    """A governed prompt of four sections."""
    folder.mkdir(parents=True)
    (folder / "prompt.yaml").write_text(PROMPT_YAML)
    (folder / "system.md").write_text(WORDS * 3)
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    (folder / "few_shot.yaml").write_text(
        '- {role: user, content: Hello}\n- {role: assistant, content: "How can I help?"}\n'
    )
    (folder / "user.md.j2").write_text("{{ question }}")
