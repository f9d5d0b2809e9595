"""The pages of all rules: of prompts (PFX0xx to PFX5xx) and of engine settings (PFX6xx)."""

from __future__ import annotations

from prefixctl.errors import UsageError
from prefixctl.lint.page import RulePage, make_page
from prefixctl.lint.rules import MODULES
from prefixctl.lint.settings.pages import setting_pages
from prefixctl.yamlfile import did_you_mean


def rule_pages() -> tuple[RulePage, ...]:
    """The pages of the rules for prompts, by id."""
    return tuple(make_page(m.RULE, m.__doc__) for m in MODULES)


def all_pages() -> tuple[RulePage, ...]:
    """The pages of all rules, by id."""
    return rule_pages() + setting_pages()


def find_page(word: str) -> RulePage:
    """The page of the rule of that id or name.

    Raises:
        UsageError: If there is none, with the nearest.
    """
    pages = all_pages()
    wanted = word.strip().lower()
    for page in pages:
        if wanted in {page.rule.id.lower(), page.rule.name}:
            return page
    known = [p.rule.id for p in pages] + [p.rule.name for p in pages]
    near = did_you_mean(word.upper(), known[: len(pages)]) if word[:1] in "pP" else None
    raise UsageError(f"no rule '{word}'", hint=near or did_you_mean(wanted, known))


def page_value(page: RulePage) -> dict[str, str]:
    """A page as JSON."""
    return {
        "id": page.rule.id,
        "name": page.rule.name,
        "severity": page.rule.severity.label,
        "confidence": page.rule.confidence.label,
        "title": page.markdown.splitlines()[2],
        "language": page.language,
        "bad": page.bad,
        "good": page.good,
        "page": page.markdown,
    }


def page_files() -> dict[str, str]:
    """File name -> text of the pages as they are kept in docs/rules."""
    pages = all_pages()
    rows = [
        f"| [{p.rule.id}]({p.rule.id}.md) | {p.rule.name} | {p.rule.severity.label} |"
        for p in pages
    ]
    index = ["# Lint rules", "", "| id | name | severity |", "|---|---|---|", *rows, ""]
    return {"README.md": "\n".join(index)} | {f"{p.rule.id}.md": p.markdown for p in pages}
