"""What a reader hands over: the blocks of one prompt, with the place of every character."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from prefixctl.core.findings import Location
from prefixctl.core.prompt import Parameter, Prompt
from prefixctl.lint.evaluate.state import Loader, no_template
from prefixctl.lint.evaluate.syntax import Template
from prefixctl.lint.evaluate.value import Site
from prefixctl.lint.source import Origin


class Syntax(StrEnum):
    """How a block's text marks its holes."""

    JINJA = "jinja"
    BRACES = "braces"
    PYTHON = "python"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of prompt text.

    Attributes:
        text: The text, with ``\\n`` as the only line end.
        syntax: How its holes are marked.
        origin: Where it lies in its file.
        template: The parsed template of a Jinja2 block.
    """

    text: str
    syntax: Syntax
    origin: Origin
    template: Template | None = None

    def locate(self, site: Site) -> Location:
        """The place in the file of a place in the block."""
        line, column = self.origin.position(self.text, self._offset(site))
        return Location(path=self.origin.source.path, line=line, column=column)

    def _offset(self, site: Site) -> int:
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
        loader: Finds included templates.
        prompt: The governed prompt, if it is one.
    """

    path: str
    format: str
    blocks: tuple[Block, ...]
    chat: bool = False
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    loader: Loader = no_template
    prompt: Prompt | None = None
