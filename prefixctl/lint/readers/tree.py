"""JSON and YAML as a tree of values with their places in the file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import yaml

from prefixctl.errors import InputError
from prefixctl.lint.source import Source, UnreadableError
from prefixctl.yamlfile import parse_yaml

MAX_DEPTH = 400
"""Brackets inside brackets at most. The YAML parser needs time that grows with their square."""
_BRACKET = re.compile(r"[\[\]{}]")
_SPACE = re.compile(r"[ \t\n\r]*")
_STRINGS = json.JSONDecoder(strict=False)
_ATOM = re.compile(r"[^\s,\[\]{}\":]+")


@dataclass(frozen=True, slots=True)
class Tree:
    """A value.

    Attributes:
        value: A text, a list, a mapping, or None for anything else.
        start: Offset of its first character in the file, for a text behind the opening quote.
        end: Offset behind its last character.
    """

    value: str | list[Tree] | dict[str, Tree] | None
    start: int
    end: int

    def get(self, key: str) -> Tree | None:
        """The value of a key, or None."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    @property
    def items(self) -> list[Tree]:
        """The entries of a list; nothing for other values."""
        return self.value if isinstance(self.value, list) else []


def read_json(source: Source) -> Tree:
    """Parse JSON.

    Raises:
        UnreadableError: With the place of the first thing that does not parse.
    """
    try:
        tree = _json_document(source.text)
    except json.JSONDecodeError as exc:
        line, column = source.position(min(exc.pos, len(source.text)))
        raise UnreadableError(f"broken JSON: {exc.msg}", line=line, column=column) from exc
    except RecursionError as exc:
        raise UnreadableError("broken JSON: nested too deeply") from exc
    return tree


def read_yaml(source: Source) -> Tree:
    """Parse YAML.

    Raises:
        UnreadableError: With the place of the first thing that does not parse.
    """
    depth = 0
    for bracket in _BRACKET.finditer(source.text):
        depth = depth + 1 if bracket.group() in "[{" else max(depth - 1, 0)
        if depth > MAX_DEPTH:
            raise UnreadableError("broken YAML: nested too deeply")
    try:
        node = parse_yaml(source.text.encode(), source.path)
        return Tree(None, 0, 0) if node is None else _yaml_value(node, {})
    except InputError as exc:
        raise UnreadableError(
            exc.message, line=exc.line or 1, column=exc.column or 1, advice=exc.hint or ""
        ) from exc
    except RecursionError as exc:
        raise UnreadableError("broken YAML: nested too deeply") from exc


def _json_document(text: str) -> Tree:
    tree, end = _json_value(text, 0)
    if _SPACE.fullmatch(text, end) is None:
        raise json.JSONDecodeError("text behind the value", text, end)
    return tree


def _json_value(text: str, at: int) -> tuple[Tree, int]:
    at = _skip(text, at)
    opening = text[at : at + 1]
    if opening == '"':
        value, end = _STRINGS.raw_decode(text, at)
        return Tree(value, at + 1, end - 1), end
    if opening == "[":
        return _json_list(text, at)
    if opening == "{":
        return _json_mapping(text, at)
    atom = _ATOM.match(text, at)
    if atom is None:
        raise json.JSONDecodeError("a value is missing", text, at)
    return Tree(None, at, atom.end()), atom.end()


def _json_list(text: str, start: int) -> tuple[Tree, int]:
    items: list[Tree] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        item, at = _json_value(text, at)
        items.append(item)
        at = _next(text, at, "]")
    return Tree(items, start, at + 1), at + 1


def _json_mapping(text: str, start: int) -> tuple[Tree, int]:
    members: dict[str, Tree] = {}
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        key, at = _json_value(text, at)
        at = _skip(text, at)
        if not isinstance(key.value, str) or text[at : at + 1] != ":":
            raise json.JSONDecodeError("a key and ':' are missing", text, at)
        members[key.value], at = _json_value(text, at + 1)
        at = _next(text, at, "}")
    return Tree(members, start, at + 1), at + 1


def _next(text: str, at: int, closing: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != closing:
        raise json.JSONDecodeError(f"',' or '{closing}' is missing", text, at)
    return at


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _yaml_value(node: yaml.Node, seen: dict[int, Tree]) -> Tree:
    known = seen.get(id(node))
    if known is not None:
        return known
    start, end = node.start_mark.index, node.end_mark.index
    value: str | list[Tree] | dict[str, Tree] | None = None
    if isinstance(node, yaml.ScalarNode):
        value = node.value
    elif isinstance(node, yaml.SequenceNode):
        value = [_yaml_value(n, seen) for n in node.value]
    elif isinstance(node, yaml.MappingNode):
        value = {
            k.value: _yaml_value(v, seen) for k, v in node.value if isinstance(k, yaml.ScalarNode)
        }
    seen[id(node)] = Tree(value, start, end)
    return seen[id(node)]
