"""YAML documents of a file with the place of every character of their strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import yaml

from prefixctl.errors import InputError
from prefixctl.sources.settings.text import SourceFile, Text
from prefixctl.yamlfile import parse_yaml

MAX_DOCUMENTS = 500
_DOCUMENT = re.compile(r"^---(?=[ \t\r\n]|\Z)|^\.\.\.(?=[ \t\r\n]|\Z)", re.MULTILINE)
_FOLD = re.compile(r"(?:\r\n|\r|\n)[ \t\r\n]*")
_BLANKS = re.compile(r"[ \t]+")
_TEMPLATE = re.compile(r"\{\{-?\s*(?:\.|\$|include|if|range|with|toYaml|template|end)")
_ESCAPES = {"n": "\n", "t": "\t", "0": "\0", "r": "\r"}


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlDocument:
    """A document: its root, and where its text begins in the file."""

    root: yaml.Node
    base: int
    file: SourceFile

    def offset(self, node: yaml.Node) -> int:
        """Where a node begins in the file."""
        return self.base + int(node.start_mark.index)

    def text(self, node: yaml.Node) -> Text:
        """A scalar's value, with the place of each character as far as it can be told."""
        value = str(node.value)
        start, end = self.offset(node), self.base + int(node.end_mark.index)
        raw = self.file.text[start:end]
        style = getattr(node, "style", None)
        expands = "$" in value
        if style in {"'", '"'}:
            found, offsets = _unquoted(raw[1:-1], start + 1, style)
        elif style in {"|", ">"}:
            found, offsets = _block(raw, start)
        else:
            found, offsets = _folded(raw.rstrip(), start)
        if style in {"|", ">"} and found.split() == value.split():
            return Text(text=found, offsets=offsets, expands=expands)
        if found != value:
            offsets = [start] * (len(value) + 1)
        return Text(text=value, offsets=offsets, quoted=True, expands=expands)


def documents(file: SourceFile) -> Iterator[YamlDocument]:
    """The documents of a YAML file.

    Raises:
        InputError: For broken YAML, with the line in the file.
    """
    cuts = [0, *(m.end() for m in _DOCUMENT.finditer(file.text)), len(file.text)]
    if len(cuts) > MAX_DOCUMENTS:
        raise InputError(f"more than {MAX_DOCUMENTS} documents", path=file.path, line=1)
    for base, end in pairwise(cuts):
        part = _DOCUMENT.sub("", file.text[base:end])
        if not part.strip():
            continue
        try:
            root = parse_yaml(part.encode(), file.path)
        except InputError as exc:
            if exc.line is not None:
                exc.line += file.locate(base).line - 1
            if _TEMPLATE.search(file.text):
                exc.hint = "a Helm template: give its values file, or what `helm template` prints"
            raise
        if root is not None:
            yield YamlDocument(root=root, base=base, file=file)


def mapping_of(node: yaml.Node) -> dict[str, yaml.Node]:
    """The values of a mapping by key; empty for any other node."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {str(k.value): v for k, v in node.value if isinstance(k, yaml.ScalarNode)}


def scalar_of(node: yaml.Node | None) -> str | None:
    """The text of a scalar; None for any other node, or none."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def _unquoted(raw: str, start: int, style: str) -> tuple[str, list[int]]:
    made: list[str] = []
    offsets: list[int] = []
    at = 0
    while at < len(raw):
        size, char = 1, raw[at]
        blanks = _BLANKS.match(raw, at)
        fold = _FOLD.match(raw, blanks.end() if blanks else at)
        if fold:
            size, char = fold.end() - at, " "
        elif blanks:
            size, char = blanks.end() - at, blanks[0]
        elif style == "'" and raw.startswith("''", at):
            size = 2
        elif style == '"' and char == "\\":
            size, char = 2, _ESCAPES.get(raw[at + 1 : at + 2], raw[at + 1 : at + 2])
        made.append(char)
        offsets += range(start + at, start + at + len(char))
        at += size
    return "".join(made), [*offsets, start + len(raw)]


def _folded(raw: str, start: int) -> tuple[str, list[int]]:
    made: list[str] = []
    offsets: list[int] = []
    at = 0
    for fold in _FOLD.finditer(raw):
        part = raw[at : fold.start()].rstrip(" \t")
        made.append(part + " ")
        offsets += range(start + at, start + at + len(part) + 1)
        at = fold.end()
    made.append(raw[at:])
    return "".join(made), [*offsets, *range(start + at, start + len(raw) + 1)]


def _block(raw: str, start: int) -> tuple[str, list[int]]:
    """The raw lines of a block scalar behind its header: as shell words they are the same."""
    folded = raw.startswith(">")
    head = re.match(r"[|>][^\n]*\n?", raw)
    begin = head.end() if head else 0
    body = raw[begin:]
    if folded:
        body = re.sub(r"(?<=\S)\n(?=[ \t]*\S)", " ", body)
    return body, list(range(start + begin, start + len(raw) + 1))
