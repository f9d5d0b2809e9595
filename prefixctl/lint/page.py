"""The page of one rule, from the docstring of its module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import cleandoc
from typing import Protocol

from prefixctl.core.findings import Confidence, Severity

_FENCE = re.compile(r"## (?P<kind>Bad|Good)\n```(?P<language>\w*)\n(?P<text>.*?)\n```", re.DOTALL)


class Documented(Protocol):
    """What a page needs to know of a rule, of whichever kind."""

    @property
    def id(self) -> str:
        """For example ``PFX101``."""

    @property
    def name(self) -> str:
        """What reads after "allow"."""

    @property
    def severity(self) -> Severity:
        """How bad its findings are."""

    @property
    def confidence(self) -> Confidence:
        """How sure they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePage:
    """A rule with its page in Markdown, its examples and their language."""

    rule: Documented
    markdown: str
    language: str
    bad: str
    good: str


def make_page(rule: Documented, docstring: str | None) -> RulePage:
    """The page of a rule; its bad and good examples are the fenced blocks under these headings."""
    title, _, body = cleandoc(docstring or "").partition("\n")
    examples = {m["kind"]: m for m in _FENCE.finditer(body)}
    head = (
        f"# {rule.id} {rule.name}\n\n{title}\n\n"
        f"Severity: {rule.severity.label}. Confidence: {rule.confidence.label}.\n"
    )
    return RulePage(
        rule=rule,
        markdown=f"{head}{body.rstrip()}\n",
        language=examples["Bad"]["language"] if "Bad" in examples else "",
        bad=examples["Bad"]["text"] if "Bad" in examples else "",
        good=examples["Good"]["text"] if "Good" in examples else "",
    )
