"""BAML: ``prompt #"..."#`` and ``template_string`` texts, with the output format they print."""

from __future__ import annotations

import re
from collections.abc import Iterator

from prefixctl.lint.document import Block, Document, Syntax
from prefixctl.lint.evaluate.syntax import parse
from prefixctl.lint.readers.text import in_file
from prefixctl.lint.source import Origin, Source, UnreadableError

SUFFIX = ".baml"
_TOKEN = re.compile(
    r"//[^\n]*|\{//.*?//\}"
    r"|(?P<raw>(?<!#)(?P<hashes>#++)\"(?P<body>.*?)\"(?P=hashes))"
    r"|(?P<open>(?<!#)#++\")"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<head>\b(?:class|enum|function|template_string|test|client(?:<\w+>)?|generator"
    r"|retry_policy)\s+[A-Za-z_]\w*)"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<brace>[{}])",
    re.DOTALL,
)
_RETURNS = re.compile(r"->\s*(?P<type>[^{]+?)\s*\{")
_FORMAT_WORDS = "Answer in JSON using this schema:\n"
_MAX_TYPES = 100
_TYPE_NAME = re.compile(r"[A-Za-z_]\w*")


def read_baml(source: Source) -> list[Document]:
    """Read the prompts of a BAML file, one document for each function and template string.

    Raises:
        UnreadableError: If a raw string is never closed, or a template cannot be parsed.
    """
    text = source.text
    types = dict(_types(text))
    documents = []
    for head, start, end in _prompts(source):
        returns = _RETURNS.search(text, head, start) if head >= 0 else None
        schema = _FORMAT_WORDS + _shown(returns["type"], types) if returns else ""
        documents.append(_document(source, start, end, schema))
    return documents


def _prompts(source: Source) -> Iterator[tuple[int, int, int]]:
    """The place of each declaration, and where its prompt's text begins and ends."""
    head, kind, word, depth = -1, "", "", 0
    for token in _TOKEN.finditer(source.text):
        if token["open"]:
            line, column = source.position(token.start())
            raise UnreadableError(
                f"broken BAML: the text after {token['open']} is never closed",
                line=line,
                column=column,
            )
        if token["head"] and depth == 0:
            head, kind, word = token.start(), token["head"].split()[0], ""
        elif token["head"] or token["word"]:
            word = (token["head"] or token["word"]).split()[-1]
        elif token["brace"]:
            depth += 1 if token["brace"] == "{" else -1
        body = "raw" if token["raw"] else "string" if token["string"] else ""
        if body and (kind == "template_string" or (kind == "function" and word == "prompt")):
            start = token.start("body") if body == "raw" else token.start() + 1
            yield head, start, token.end("body") if body == "raw" else token.end() - 1
            kind = "" if kind == "template_string" else kind
            word = ""


def _document(source: Source, start: int, end: int, schema: str) -> Document:
    text, origin = source.text[start:end], Origin(source, start)
    try:
        template = parse(text)
    except UnreadableError as exc:
        raise in_file(exc, text, origin) from exc
    block = Block(text=text, syntax=Syntax.JINJA, origin=origin, template=template)
    constants = {"ctx.output_format": schema, "ctx.client": ""}
    return Document(path=source.path, format="baml", blocks=(block,), constants=constants)


def _types(text: str) -> Iterator[tuple[str, str]]:
    """The classes and enums of a file with their bodies."""
    name, depth, start = "", 0, 0
    for token in _TOKEN.finditer(text):
        if token["head"] and depth == 0:
            kind, _, declared = token["head"].partition(" ")
            name = declared.strip() if kind in {"class", "enum"} else ""
        elif token["brace"] == "{":
            depth += 1
            start = token.end() if depth == 1 else start
        elif token["brace"] == "}":
            depth -= 1
            if depth == 0 and name:
                yield name, text[start : token.start()]


def _shown(name: str, types: dict[str, str]) -> str:
    """A type as the output format shows it: its fields with their types, each class once."""
    written: set[str] = set()

    def expand(found: re.Match[str]) -> str:
        body = types.get(found.group())
        if body is None or found.group() in written or len(written) >= _MAX_TYPES:
            return found.group()
        written.add(found.group())
        return "{" + _TYPE_NAME.sub(expand, _without_checks(body)) + "}"

    return _TYPE_NAME.sub(expand, name)


def _without_checks(body: str) -> str:
    """The fields of a class; descriptions are shown, checks are not."""
    shown = re.sub(r"@(?:check|assert|alias|skip)\([^\n]*\)", "", body)
    return re.sub(r"//[^\n]*", "", shown)
