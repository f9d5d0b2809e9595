"""Governed prompts: folders with a prompt.yaml, whose declared scopes go before all guesses."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

from prefixctl.core.prompt import PROMPT_FILE, Prompt, Section, is_template
from prefixctl.errors import InputError
from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.syntax import parse
from prefixctl.lint.source import Origin, UnreadableError, decode
from prefixctl.prompts.load import load_prompt


class BrokenPromptError(Exception):
    """A governed prompt that cannot be read, with the file and the place."""

    def __init__(self, path: str, cause: UnreadableError) -> None:
        super().__init__(cause.message)
        self.path = path
        self.cause = cause


def read_governed(folder: Path, overlay: Mapping[str, bytes] | None = None) -> Document:
    """Read a governed prompt, section by section.

    Args:
        folder: Its folder.
        overlay: See `prefixctl.prompts.load.load_prompt`.

    Raises:
        BrokenPromptError: If prompt.yaml or a section's file cannot be read.
    """
    top = str(folder / PROMPT_FILE)
    try:
        prompt = load_prompt(folder, overlay)
    except InputError as exc:
        cause = UnreadableError(
            exc.message, line=exc.line or 1, column=exc.column or 1, advice=exc.hint or ""
        )
        raise BrokenPromptError(exc.path or top, cause) from exc

    def load(name: str) -> str | None:
        data = prompt.files.get(posixpath.normpath(name))
        return None if data is None else decode(data, name).text

    return Document(
        path=top,
        format="governed",
        blocks=tuple(_block(folder, prompt, s) for s in prompt.sections),
        parameters=prompt.parameters,
        loader=load,
        prompt=prompt,
    )


def _block(folder: Path, prompt: Prompt, section: Section) -> Block:
    path = str(folder / section.file)
    try:
        source = decode(prompt.files[section.file], path)
        template = parse(source.text) if is_template(section.file) else None
    except UnreadableError as exc:
        raise BrokenPromptError(path, exc) from exc
    return Block(
        text=source.text,
        syntax=Syntax.JINJA if template else Syntax.PLAIN,
        origin=Origin(source),
        template=template,
    )
