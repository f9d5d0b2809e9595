"""The documents of a file, whatever it holds: by its name first, then by what stands in it."""

from __future__ import annotations

import re
from pathlib import PurePath

from prefixctl.lint.document import Document
from prefixctl.lint.evaluate.state import Loader, no_template
from prefixctl.lint.readers import baml, code, config, handlebars, likeness, prompty, python
from prefixctl.lint.readers.text import TEMPLATE_SUFFIXES, TEXT_SUFFIXES, read_text
from prefixctl.lint.source import Source, UnreadableError

UNREAD_SUFFIXES = frozenset(
    [".c", ".cc", ".cpp", ".h", ".hpp", ".ini", ".cfg", ".html", ".css", ".ipynb", ".csv", ".tsv",
     ".jsonl", ".ndjson", ".log", ".sql", ".lock", ".svg", ".patch", ".diff", ".pyi"]
)  # fmt: skip
CODE_SUFFIXES = frozenset([".py"]) | code.SUFFIXES
READ_SUFFIXES = (
    TEMPLATE_SUFFIXES | TEXT_SUFFIXES | config.SUFFIXES | CODE_SUFFIXES | handlebars.SUFFIXES
    | frozenset([baml.SUFFIX, prompty.SUFFIX])
)  # fmt: skip
MAX_CODE_CHARS = 1_000_000
"""Longer source code is a bundle that a tool wrote."""
_ALWAYS_PROMPTS = frozenset([".prompt"])
_FENCED = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_SPEAKS_OF_PROMPTS = ('"chat_template"', '"role"')


def may_hold_a_prompt(path: PurePath) -> bool:
    """Whether a file that nobody named is looked at.

    Source code is, if its name or its folder's name speaks of prompts.
    """
    suffix = path.suffix.lower()
    if suffix in CODE_SUFFIXES:
        return likeness.names_a_prompt(path.stem, path.parent.name)
    return suffix in READ_SUFFIXES


def read_file(
    source: Source, *, named: bool, loader: Loader = no_template
) -> list[Document] | None:
    """Read a file that is no governed prompt.

    Args:
        source: The file.
        named: Whether the command line names it.
        loader: Finds included templates.

    Returns:
        One document for each prompt in it; None if it holds none and nobody named it.

    Raises:
        UnreadableError: If it, or a template in it, cannot be parsed, or if it is named and holds
            no prompt.
    """
    path = PurePath(source.path)
    suffix = path.suffix.lower()
    refusal = _refusal(suffix, source)
    if refusal is not None:
        if named:
            raise refusal
        return None
    if suffix in CODE_SUFFIXES or suffix == baml.SUFFIX or suffix in config.SUFFIXES:
        return _with_strings(source, suffix, named=named, loader=loader)
    document = _template(source, suffix, loader)
    if document is not None:
        return [document]
    return _text(source, suffix, named=named, loader=loader)


def _template(source: Source, suffix: str, loader: Loader) -> Document | None:
    """The document of a file whose format has its own reader; None for any other text."""
    if suffix == prompty.SUFFIX:
        return prompty.read_prompty(source, loader=loader)
    if suffix in handlebars.SUFFIXES:
        return handlebars.read_handlebars(source)
    if suffix in _ALWAYS_PROMPTS and handlebars.is_dotprompt(source):
        return handlebars.read_dotprompt(source)
    if suffix not in TEMPLATE_SUFFIXES and handlebars.is_kernel(source):
        return handlebars.read_kernel(source)
    return None


def _refusal(suffix: str, source: Source) -> UnreadableError | None:
    """Why a file is not read, if it is not."""
    if suffix in UNREAD_SUFFIXES:
        return UnreadableError(
            f"prompts inside {suffix} files are not read", advice="keep the prompt in its own file"
        )
    if suffix in CODE_SUFFIXES and len(source.text) > MAX_CODE_CHARS:
        return UnreadableError(
            f"source code of more than {MAX_CODE_CHARS:,} characters is not read",
            advice="name the files that it is built from",
        )
    return None


def _with_strings(
    source: Source, suffix: str, *, named: bool, loader: Loader
) -> list[Document] | None:
    """Files whose prompts are strings among other things."""
    try:
        if suffix in config.SUFFIXES:
            documents = config.read_config(source, named=named, loader=loader)
        elif suffix == baml.SUFFIX:
            documents = baml.read_baml(source)
        elif suffix == ".py":
            documents = python.read_python(source)
        else:
            documents = code.read_code(source)
    except RecursionError as exc:
        raise UnreadableError("nested too deeply") from exc
    except UnreadableError:
        if named or any(word in source.text for word in _SPEAKS_OF_PROMPTS):
            raise
        return None
    if not documents and named:
        raise UnreadableError(
            "holds no prompt: no message list, no chat template and no string that reads as one",
            advice="name the files that hold prompts, or give the string a name such as "
            "system_prompt",
        )
    return documents or None


def _text(source: Source, suffix: str, *, named: bool, loader: Loader) -> list[Document] | None:
    if not named and suffix == ".md" and _only_in_examples(source.text):
        return None
    document = read_text(source, template=suffix in TEMPLATE_SUFFIXES, loader=loader)
    plain = document.format == "text" and suffix in TEXT_SUFFIXES - _ALWAYS_PROMPTS
    return [document] if named or not plain or _is_prompt_folder(source.path) else None


def _only_in_examples(text: str) -> bool:
    """Whether a text has braces in code examples alone, as documentation has."""
    return "{" in text and "{" not in _FENCED.sub("", text)


def _is_prompt_folder(path: str) -> bool:
    """Whether the name of a file's folder says that its plain texts are prompts."""
    folder = PurePath(path).parent.name.lower()
    return any(word in folder for word in ("prompt", "template"))
