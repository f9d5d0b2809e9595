"""The page of every rule, from the docstring of its module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import cleandoc

from prefixctl.errors import UsageError
from prefixctl.lint.rule import Rule
from prefixctl.lint.rules import MODULES
from prefixctl.yamlfile import did_you_mean

_FENCE = re.compile(r"## (?P<kind>Bad|Good)\n```\w*\n(?P<text>.*?)\n```", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePage:
    """A rule with its page in Markdown and its examples."""

    rule: Rule
    markdown: str
    bad: str
    good: str


def rule_pages() -> tuple[RulePage, ...]:
    """The pages of all rules, by id."""
    return tuple(_page(m.RULE, cleandoc(m.__doc__ or "")) for m in MODULES)


def find_page(word: str) -> RulePage:
    """The page of the rule of that id or name.

    Raises:
        UsageError: If there is none, with the nearest.
    """
    pages = rule_pages()
    wanted = word.strip().lower()
    for page in pages:
        if wanted in {page.rule.id.lower(), page.rule.name}:
            return page
    known = [p.rule.id for p in pages] + [p.rule.name for p in pages]
    near = did_you_mean(word.upper(), known[: len(pages)]) if word[:1] in "pP" else None
    raise UsageError(f"no rule '{word}'", hint=near or did_you_mean(wanted, known))


def page_files() -> dict[str, str]:
    """File name -> text of the pages as they are kept in docs/rules."""
    pages = rule_pages()
    rows = [
        f"| [{p.rule.id}]({p.rule.id}.md) | {p.rule.name} | {p.rule.severity.label} |"
        for p in pages
    ]
    index = ["# Lint rules", "", "| id | name | severity |", "|---|---|---|", *rows, ""]
    return {"README.md": "\n".join(index)} | {f"{p.rule.id}.md": p.markdown for p in pages}


def _page(rule: Rule, doc: str) -> RulePage:
    title, _, body = doc.partition("\n")
    examples = {m["kind"]: m["text"] for m in _FENCE.finditer(body)}
    head = (
        f"# {rule.id} {rule.name}\n\n{title}\n\n"
        f"Severity: {rule.severity.label}. Confidence: {rule.confidence.label}.\n"
    )
    return RulePage(
        rule=rule,
        markdown=f"{head}{body.rstrip()}\n",
        bad=examples.get("Bad", ""),
        good=examples.get("Good", ""),
    )
