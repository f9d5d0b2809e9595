"""Prompts in the source of Go, TypeScript, Java and their like: long string literals.

A light reader: it knows literals, comments and what is joined by ``+``, and no more of a language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from prefixctl.lint.document import Block, Document, Doubt, Syntax
from prefixctl.lint.evaluate.at_import import as_read_at_import
from prefixctl.lint.evaluate.code_expressions import code_value
from prefixctl.lint.evaluate.printf import PERCENT, fill
from prefixctl.lint.evaluate.value import EMPTY, Value, concat, text_value
from prefixctl.lint.readers import likeness
from prefixctl.lint.readers.code_lexer import SUFFIXES, Token, interpolations, tokens
from prefixctl.lint.readers.literals import read_literal
from prefixctl.lint.readers.strings import literal_value, static_text
from prefixctl.lint.source import Origin, Source

__all__ = ["SUFFIXES", "read_code"]

MAX_PROMPTS = 500
_LOOK_BACK_CHARS = 200
_NAMED = re.compile(
    r"(?P<name>[A-Za-z_$][\w$]*)[\"']?\]?\s*(?:\??:\s*[\w<>\[\]&', .|]+?)?\s*(?::=|=(?!>)|:)\s*"
    r"(?P<arrow>(?:async\s*)?\(?[^=;`\n]*\)?[^=;`\n]*=>\s*\(?\s*(?:\{\s*return\s*)?)?"
    r"(?:[\w.!$]+\(\s*|\(\s*)*[$@ruRsf]{0,2}\s*\Z"
)
_RETURNED = re.compile(r"(?:return|=>)\s*\(?\s*(?:[\w.!]+\(\s*)?[$@]{0,2}\Z")
_FUNCTION = re.compile(
    r"\b(?:func|function|def|fn|fun)\s+(?:\([^)\n]*\)\s*)?(?P<name>[A-Za-z_]\w*)"
    r"|\b(?P<method>[A-Za-z_]\w*)\s*(?:=\s*(?:async\s*)?)?\([^()\n]*\)[^;{}()\n]*(?:=>|\{)"
)
_CONSTANT = re.compile(r"\b(?:const|static|final|readonly|val|let)\b[^\n;{}]*\Z")
_JOINT = re.compile(r"\s*(?:\+|\.(?=\s*[\"'$])|\\\n)\s*")
_OPERAND = re.compile(r"[A-Za-z_$][\w$.]*(?:\([^()\n]*\))?(?:\.\w+\([^()\n]*\))*")
_PRINTF = re.compile(r"(?:[Ss]printf|String\.format|\.formatted|Errorf|format)\(\s*\Z")
_LOGGED = re.compile(
    r"(?:\b(?:log\w*|console|[Ll]ogger)\.\w+|Errorf|errors\.New|\.(?:error|warn|info|debug)"
    r"|\bprint(?:ln|f)?!?|\bthrow new \w+|\bpanic!?|Error|Exception|\bassert\w*!?"
    r"|\b(?:expect|it|describe|test))\s*\(\s*\Z"
)


@dataclass(slots=True)
class _Chain:
    """Literals and operands that are joined."""

    first: Token
    end: int
    values: list[Value]


def read_code(source: Source) -> list[Document]:
    """Read the prompts of a source file.

    Raises:
        UnreadableError: If a literal that may span lines is never closed.
    """
    suffix = PurePath(source.path).suffix.lower()
    documents: list[Document] = []
    for chain in _chains(source, list(tokens(source, suffix))):
        if len(documents) < MAX_PROMPTS:
            document = _document(source, chain)
            documents += [document] if document is not None else []
    return documents


def _chains(source: Source, found: list[Token]) -> Iterator[_Chain]:
    chain: _Chain | None = None
    for token in found:
        if chain is not None and token.start < chain.end:
            continue
        joined = _joined(source, chain, token) if chain is not None else None
        if chain is not None and joined is not None:
            chain.values += [joined, _literal(source, token)]
        else:
            if chain is not None:
                yield chain
            chain = _Chain(token, token.end, [_literal(source, token)])
        chain.end = token.end
    if chain is not None:
        yield chain


def _joined(source: Source, chain: _Chain, token: Token) -> Value | None:
    """What stands between two literals that are joined; None if they are not."""
    between = source.text[chain.end : token.start]
    joint = _JOINT.match(between)
    if joint is None:
        return None
    if joint.end() == len(between):
        return text_value("")
    operand = _OPERAND.match(between, joint.end())
    if operand is None or not _JOINT.fullmatch(between, operand.end()):
        return None
    return code_value(operand.group(), chain.end + operand.start())


def _literal(source: Source, token: Token) -> Value:
    text = source.text
    if not token.interpolated:
        literal = read_literal(text, token.body, token.body_end, raw=token.raw, keep_indent=False)
        value = literal_value(source, literal)
        before = text[max(0, token.start - 40) : token.start]
        return _with_arguments(text, token, value) if _PRINTF.search(before) else value
    printed: list[Value] = []
    at = token.body
    for start, stop in interpolations(text, token.body, token.body_end):
        printed.append(text_value(read_literal(text, at, start, raw=False).text))
        printed.append(code_value(text[start + 2 : stop - 1], start))
        at = stop
    if at == token.body:
        return literal_value(source, read_literal(text, at, token.body_end, raw=False))
    printed.append(text_value(read_literal(text, at, token.body_end, raw=False).text))
    return concat(printed)


def _with_arguments(text: str, token: Token, value: Value) -> Value:
    """A printf text with its arguments in place of the codes."""
    arguments = _arguments(text, token.end)

    def argument(_: str | None) -> Value:
        start, expression = next(arguments, (0, ""))
        return code_value(expression, start) if expression else EMPTY

    return fill(value, PERCENT, argument)


def _arguments(text: str, at: int) -> Iterator[tuple[int, str]]:
    """The arguments behind a format text, up to the bracket that closes the call."""
    depth, start = 0, at
    for end in range(at, min(len(text), at + 4000)):
        char = text[end]
        if char in "([{":
            depth += 1
        elif char in ")]}" or (char == "," and depth == 0):
            if depth == 0:
                argument = text[start:end].strip(" \t\n,")
                if argument:
                    yield (
                        start + len(text[start:end]) - len(text[start:end].lstrip(" \t\n,")),
                        argument,
                    )
                if char != ",":
                    return
                start = end + 1
            else:
                depth -= 1


def _document(source: Source, chain: _Chain) -> Document | None:
    value = concat(chain.values)
    static = static_text(value)
    if not likeness.is_prompt(static, named=True, holes=bool(value.holes)):
        return None
    before = source.text[max(0, chain.first.start - _LOOK_BACK_CHARS) : chain.first.start]
    if _LOGGED.search(before):
        return None
    name, function = _name(source.text, chain.first.start, before)
    named = likeness.names_a_prompt(name, function)
    if likeness.names_another_thing(name) or not likeness.is_prompt(
        static, named=named, holes=bool(value.holes)
    ):
        return None
    line = before[before.rfind("\n") + 1 :]
    constant = not function and bool(
        chain.first.depth == 0 or name.isupper() or _CONSTANT.search(line)
    )
    value = as_read_at_import(value) if constant else value
    block = Block(
        text=source.text,
        syntax=Syntax.PLAIN,
        origin=Origin(source),
        value=value,
        doubt=Doubt.NONE if constant else Doubt.PIECE,
    )
    return Document(path=source.path, format="source", blocks=(block,))


def _name(text: str, start: int, before: str) -> tuple[str, str]:
    """What a literal is called, and the function that returns it, if one does."""
    assigned = _NAMED.search(before)
    if assigned and not assigned["arrow"]:
        return assigned["name"], ""
    if assigned:
        return "", assigned["name"]
    if _RETURNED.search(before):
        functions = list(_FUNCTION.finditer(text, max(0, start - 20 * _LOOK_BACK_CHARS), start))
        return "", (functions[-1]["name"] or functions[-1]["method"]) if functions else "function"
    return "", ""
