"""Prompt strings in YAML, JSON and TOML files, under whatever key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prefixctl.lint.document import Block, Document, Doubt, Syntax
from prefixctl.lint.evaluate.braces import check_blocks
from prefixctl.lint.evaluate.dollar import has_dollar_names
from prefixctl.lint.evaluate.names import split_words
from prefixctl.lint.evaluate.state import Loader, no_template
from prefixctl.lint.readers import likeness, messages, tools
from prefixctl.lint.readers.text import in_file, is_chat_template, text_block
from prefixctl.lint.readers.toml_tree import read_toml
from prefixctl.lint.readers.tree import Tree, read_json, read_yaml
from prefixctl.lint.source import Origin, Source, UnreadableError

SUFFIXES = frozenset([".json", ".yaml", ".yml", ".toml"])
_FORMAT_KEYS = ("template_format", "templateFormat", "template_type", "prompt_format", "syntax")
_FORMATS = {
    "jinja": Syntax.JINJA,
    "jinja2": Syntax.JINJA,
    "handlebars": Syntax.BRACES,
    "mustache": Syntax.BRACES,
    "semantic-kernel": Syntax.BRACES,
    "liquid": Syntax.BRACES,
    "f-string": Syntax.PYTHON,
    "python": Syntax.PYTHON,
    "string": Syntax.PLAIN,
}
_ABOUT = frozenset(
    ["description", "summary", "comment", "comments", "notes", "note", "title", "name", "names",
     "label", "id", "license", "author", "authors", "help", "doc", "docs", "url", "version",
     "changelog", "readme", "path", "command", "run", "script", "expected", "reason", "reference",
     "answer", "answers", "choices", "output"]
)  # fmt: skip
"""Words of keys whose text is about a prompt, or beside it."""
_ASIDE = frozenset(
    ["chat_template", "tests", "test", "assert", "asserts", "vars", "i18n", "locales", "metadata",
     "parameters", "properties", "schema", "input_schema", "env", "environment", "labels",
     "annotations", "jobs", "steps", "scripts", "dependencies"]
)  # fmt: skip
"""Keys below which nothing is a prompt."""
_ROLES = {
    "system": frozenset(["system", "sys"]),
    "user": frozenset(["user", "human"]),
}
_PART = frozenset(["prompt", "message", "template", "content", "text", "instruction",
                   "instructions"])  # fmt: skip
_TARGET = re.compile(r"^\|\|\|\s*$.*", re.DOTALL | re.MULTILINE)
"""What data sets of prompts put behind the prompt: the wanted answer."""
_MAX_STRINGS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A string and the way to it."""

    tree: Tree
    keys: tuple[str, ...]
    holder: Tree

    @property
    def key(self) -> str:
        """The nearest key that is no number."""
        return self.keys[-1] if self.keys else ""

    @property
    def text(self) -> str:
        """The string."""
        return self.tree.value if isinstance(self.tree.value, str) else ""


def read_config(source: Source, *, named: bool, loader: Loader = no_template) -> list[Document]:
    """Read the chat templates, message lists, tool schemas and prompt strings of a file.

    Args:
        source: The file.
        named: Whether the command line names it: then strings with placeholders count under any
            key, else only where the key speaks of a prompt.
        loader: Finds included templates.

    Returns:
        One document for each prompt; none if the file holds none.

    Raises:
        UnreadableError: If the file or a template in it cannot be parsed.
    """
    tree = _tree(source)
    schema = tools.read_tools(source, tree)
    if schema is not None:
        return [schema]
    documents = messages.read_messages(source, tree, loader=loader)
    found = [f for f in _strings(tree, (), tree) if _is_prompt(f, named=named)]
    return documents + [_document(source, group, loader) for group in _grouped(found)]


def _tree(source: Source) -> Tree:
    if source.path.endswith(".json"):
        return read_json(source)
    return read_toml(source) if source.path.endswith(".toml") else read_yaml(source)


def _strings(tree: Tree, keys: tuple[str, ...], holder: Tree) -> Iterator[_Found]:
    pending = [(tree, keys, holder)]
    for _ in range(_MAX_STRINGS):
        if not pending:
            return
        current, path, parent = pending.pop()
        if isinstance(current.value, str):
            yield _Found(tree=current, keys=path, holder=parent)
        elif isinstance(current.value, dict):
            pending += [
                (value, (*path, key), current)
                for key, value in reversed(list(current.value.items()))
                if key.lower() not in _ASIDE
            ]
        elif not messages.is_message_list(current):
            pending += [(item, path, current) for item in reversed(current.items)]


def _is_prompt(found: _Found, *, named: bool) -> bool:
    text = found.text
    if len(text) < 8:  # noqa: PLR2004 - shorter than any template
        return False
    words = set(split_words(found.key))
    by_key = likeness.names_a_prompt(found.key)
    near = by_key or likeness.names_a_turn(found.key) or likeness.names_a_prompt(*found.keys[-3:])
    if likeness.names_another_thing(found.key):
        return False
    if words & _ABOUT and not by_key:
        return named and "expected_output" in (found.holder.value or ()) and _reads(text, near=True)
    if not named and not near:
        return False
    return _reads(text, near=near)


def _reads(text: str, *, near: bool) -> bool:
    return likeness.is_prompt(text, named=near)


def _grouped(found: list[_Found]) -> list[list[_Found]]:
    """System text and user text of one mapping make one prompt, in this order."""
    groups: list[list[_Found]] = []
    by_holder: dict[int, dict[str, list[_Found]]] = {}
    for one in found:
        role = _role(one.key)
        group = by_holder.setdefault(id(one.holder), {}).get(role) if role else None
        if role == "" or group is not None:
            groups.append([one])
            continue
        roles = by_holder[id(one.holder)]
        joined = next(iter(roles.values()), None)
        if joined is None:
            joined = []
            groups.append(joined)
        roles[role] = joined
        joined.append(one)
        joined.sort(key=lambda f: _role(f.key) != "system")
    return groups


def _role(key: str) -> str:
    words = set(split_words(key))
    for role, names in _ROLES.items():
        if words & names and words <= names | _PART:
            return role
    return ""


def _document(source: Source, group: list[_Found], loader: Loader) -> Document:
    blocks = tuple(_block(source, f) for f in group)
    chat = len(blocks) == 1 and blocks[0].syntax is Syntax.JINJA and is_chat_template(group[0].text)
    return Document(path=source.path, format="config", blocks=blocks, chat=chat, loader=loader)


def _block(source: Source, found: _Found) -> Block:
    text = _TARGET.sub("", found.text.replace("\r\n", "\n").replace("\r", "\n"))
    origin = Origin(source, found.tree.start, found.tree.end)
    syntax = _declared(found)
    doubt = Doubt.NONE if likeness.calls_it_a_prompt(found.key) else Doubt.PROMPT
    if syntax is Syntax.BRACES:
        try:
            check_blocks(text)
        except UnreadableError as exc:
            raise in_file(exc, text, origin) from exc
    if syntax in {Syntax.BRACES, Syntax.PLAIN, Syntax.PYTHON}:
        return Block(text=text, syntax=syntax, origin=origin, doubt=doubt)
    block = text_block(text, origin, template=syntax is Syntax.JINJA)
    if block.syntax is Syntax.PLAIN and has_dollar_names(text):
        return Block(text=text, syntax=Syntax.DOLLAR, origin=origin, doubt=doubt)
    return Block(
        text=text, syntax=block.syntax, origin=origin, template=block.template, doubt=doubt
    )


def _declared(found: _Found) -> Syntax | None:
    if "jinja" in split_words(found.key):
        return Syntax.JINJA
    for key in _FORMAT_KEYS:
        declared = found.holder.get(key)
        if declared is not None and isinstance(declared.value, str):
            return _FORMATS.get(declared.value.lower())
    return None
