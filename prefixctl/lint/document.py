"""What a reader hands over: the blocks of one prompt, with the place of every character."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from prefixctl.core.findings import Location
from prefixctl.core.prompt import Parameter, Prompt
from prefixctl.lint.evaluate.state import Loader, no_template
from prefixctl.lint.evaluate.syntax import Template
from prefixctl.lint.evaluate.value import Site, Value
from prefixctl.lint.source import Origin


class Syntax(StrEnum):
    """How a block's text marks its holes."""

    JINJA = "jinja"
    BRACES = "braces"
    PYTHON = "python"
    DOLLAR = "dollar"
    PLAIN = "plain"


class Doubt(StrEnum):
    """What is not sure about a string that was taken for a prompt."""

    NONE = "none"
    PROMPT = "prompt"
    PIECE = "piece"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of prompt text.

    Attributes:
        text: The text, with ``\\n`` as the only line end.
        syntax: How its holes are marked.
        origin: Where it lies in its file.
        template: The parsed template of a Jinja2 block.
        value: What it prints, where a reader of source code has worked that out already; its sites
            are offsets in the text.
        doubt: Whether it is a guess that the text is a prompt, and a whole one.
    """

    text: str
    syntax: Syntax
    origin: Origin
    template: Template | None = None
    value: Value | None = None
    doubt: Doubt = Doubt.NONE

    def locate(self, site: Site) -> Location:
        """The place in the file of a place in the block."""
        line, column = self.origin.position(self.text, self.offset(site))
        return Location(path=self.origin.source.path, line=line, column=column)

    def offset(self, site: Site) -> int:
        """The offset in the block's text of a place in the block."""
        if site.offset is not None:
            return site.offset
        if site.printed is not None and self.template is not None:
            offset = self.template.offset_of_print(site.printed)
            if offset is not None:
                return offset
        start = 0
        for _ in range(site.line - 1):
            start = self.text.find("\n", start) + 1
        end = self.text.find("\n", start)
        line = self.text[start : end if end >= 0 else None]
        found = line.find(site.word) if site.word else 0
        return start + (found if found >= 0 else len(line) - len(line.lstrip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One prompt as it reaches the model.

    Attributes:
        path: Of the file that stands for it.
        format: What it was read as, for people.
        blocks: In the order in which they reach the model.
        chat: Whether it is a model's chat template.
        parameters: Declared parameters.
        constants: Names that stand for text which the file itself gives, with that text.
        loader: Finds included templates.
        prompt: The governed prompt, if it is one.
    """

    path: str
    format: str
    blocks: tuple[Block, ...]
    chat: bool = False
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    loader: Loader = no_template
    prompt: Prompt | None = None
