"""What lint does, everywhere and for some paths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prefixctl.config.fields import BlockSize, Patterns, Scope
from prefixctl.yamlfile import StrictModel

Mark = Annotated[str, Field(min_length=2, max_length=2, pattern=r"^\S\S$")]


JINJA_MARKS = {"variable": ("{{", "}}"), "block": ("{%", "%}"), "comment": ("{#", "#}")}
"""What Jinja2 puts around a printed value, a statement and a comment."""


class DelimitersConfig(StrictModel):
    """What marks templates instead of Jinja2's own: two characters each."""

    variable: tuple[Mark, Mark] | None = Field(
        default=None, description="Around a printed value, instead of `{{` and `}}`."
    )
    block: tuple[Mark, Mark] | None = Field(
        default=None, description="Around a statement, instead of `{%` and `%}`."
    )
    comment: tuple[Mark, Mark] | None = Field(
        default=None, description="Around a comment, instead of `{#` and `#}`."
    )

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        opening: dict[str, str] = {}
        for name, own in JINJA_MARKS.items():
            start, end = getattr(self, name) or own
            if start == end:
                raise ValueError(f"'{start}' both opens and closes a {name}")
            if start in opening:
                raise ValueError(f"'{start}' opens a {opening[start]} and a {name}")
            opening[start] = name
        return self


class LintPathConfig(StrictModel):
    """What lint and settings do differently for some paths. Later entries win."""

    match: Patterns = Field(
        description="Glob pattern, or a list: paths from this file's folder, or names of files; "
        "`*` also crosses folders."
    )
    select: tuple[str, ...] = Field(
        default=(), description="The only rules that count: ids, beginnings of ids, or names."
    )
    ignore: tuple[str, ...] = Field(
        default=(), description="Rules that do not count: ids, beginnings of ids, or names."
    )
    severity: dict[str, Literal["info", "warning", "error"]] = Field(
        default_factory=dict, description="Another severity by rule: `PFX105: warning`."
    )
    variables: dict[str, Scope] = Field(
        default_factory=dict,
        description="How often a variable changes, by its name: `company: deployment`. Goes before "
        "what its name says; a governed prompt declares its own.",
    )
    delimiters: DelimitersConfig | None = Field(
        default=None, description="What marks templates instead of Jinja2's own."
    )


class LintConfig(StrictModel):
    """What lint does by default."""

    exclude: tuple[str, ...] = Field(default=(), description="Glob patterns of paths to skip.")
    fail_on: Literal["info", "warning", "error", "never"] = Field(
        default="error", description="Severity from which lint exits 1."
    )
    block_size: BlockSize | None = Field(
        default=None, description="Block size for prompts without a target; 16 if omitted."
    )
    baseline: Path | None = Field(
        default=None, description="File with known findings, which do not fail a run."
    )
    paths: tuple[LintPathConfig, ...] = Field(
        default=(), description="What is different for some paths."
    )
