"""The text of the files that `init` proposes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from prefixctl.adopt.find import ADOPTED
from prefixctl.adopt.model import Piece, Scope

_WORD = re.compile(r"[A-Za-z_][\w-]*")
_YAML_WORDS = frozenset(["yes", "no", "on", "off", "true", "false", "null", "y", "n"])

CI = """\
# Proposed by `prefixctl init`. Install prefixctl as your other tools are installed.
# The baseline holds the findings of the day: only new ones fail.
name: prefixctl
on: [pull_request]
jobs:
  prefixes:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: pip install prefixctl
      - run: prefixctl lint --baseline prefixctl-baseline.json
      - run: prefixctl bump --check
"""
BASELINE = "prefixctl-baseline.json"
CI_PATH = ".github/workflows/prefixctl.yaml"


def prompt_yaml(
    origin: str, pieces: Sequence[Piece], scopes: Mapping[str, Scope], *, name: str | None = None
) -> str:
    """A prompt.yaml; every scope is marked as the guess that it is."""
    lines = [
        f"{ADOPTED}{origin}",
        "# Scopes marked as guesses come from the names: check them.",
        *([f"name: {_word(name)}"] if name else []),
        "sections:",
    ]
    for piece in pieces:
        lines.append(f"  - kind: {piece.kind.value}")
        lines.append(f"    file: {_word(piece.file)}")
        if piece.role is not None:
            lines.append(f"    role: {_word(piece.role)}")
    if scopes:
        lines.append("parameters:")
    for parameter, guess in scopes.items():
        reason = f": {guess.reason}" if guess.reason else ""
        lines.append(f"  {_word(parameter)}: {{scope: {guess.scope.label}}}  # guess{reason}")
    return "\n".join(lines) + "\n"


def config_yaml(
    prompts: str,
    exclude: Sequence[str],
    chat_templates: Sequence[str],
    deployment: Sequence[str],
) -> str:
    """A prefixctl.yaml without a target: that one knows only who runs the server."""
    lines = [
        "# Proposed by `prefixctl init`.",
        f"prompts: {_word(prompts)}",
        "",
        "# A target makes token counts and keys exact. Fill in what your server runs:",
        "# targets:",
        "#   production:",
        "#     model: your/model          # as it is served, or a local folder",
        "#     tokenizer: path/to/folder  # with tokenizer.json",
    ]
    lines += [f"#     chat_template: {_word(t)}" for t in chat_templates[:1]]
    if deployment:
        values = ", ".join(f"{name}: value" for name in deployment)
        lines.append(f"#     parameters: {{{values}}}  # guessed to be fixed for a deployment")
    lines += ["", "lint:", f"  baseline: {BASELINE}  # the findings of the day: only new ones fail"]
    if exclude:
        lines.append("  exclude:  # could not be read when `init` looked")
        lines += [f"    - {_word(path)}" for path in exclude]
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    """A YAML scalar: plain if that is safe, else in double quotes."""
    if _WORD.fullmatch(text) and text.lower() not in _YAML_WORDS:
        return text
    return json.dumps(text, ensure_ascii=False)
