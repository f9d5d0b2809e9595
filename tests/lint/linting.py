"""What the lint tests share: static text of a known length, and one call to lint a text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import prefixctl.cli.main
from prefixctl.api.lint import lint_paths
from prefixctl.config import Config
from prefixctl.lint.report import FileReport

WORDS = [
    "answer",
    "questions",
    "about",
    "orders",
    "parcels",
    "returns",
    "refunds",
    "warranties",
    "deliveries",
    "invoices",
    "tents",
    "boots",
    "stoves",
    "maps",
    "lamps",
    "ropes",
    "jackets",
    "in",
    "short",
    "plain",
    "sentences",
    "and",
    "never",
    "invent",
    "a",
    "number",
]


def static(words: int) -> str:
    """Static text of that many words, ten on a line."""
    chosen = [WORDS[i % len(WORDS)] for i in range(words)]
    return "\n".join(" ".join(chosen[i : i + 10]) for i in range(0, words, 10)) + "\n"


def lint_text(folder: Path, text: str | bytes, name: str = "prompt.jinja") -> FileReport:
    """Lint one file with that content."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return lint_paths(Config().at(folder), [path]).files[0]


def run_prefixctl(monkeypatch, capsys, *words: str) -> tuple[int, str, str]:
    """Run the command line in this process, as its entry point does: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["prefixctl", *words])
    with pytest.raises(SystemExit) as ended:
        prefixctl.cli.main.run()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


CHAT_LOOP = (
    "{%- for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|assistant|>' }}{%- endif %}"
)
