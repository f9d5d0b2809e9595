"""Prompts in Python, JavaScript and TypeScript: long strings under a name that speaks of prompts.

Nothing is executed.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from prefixctl.adopt.model import Candidate, LeftOut
from prefixctl.adopt.structured import MAX_PROMPTS, text_piece
from prefixctl.adopt.texts import is_prose, names_a_prompt
from prefixctl.core.prompt import SectionKind

_LEAST_CHARS = 80
_TESTS = re.compile(
    r"(?:^|/)(?:(?:__)?tests?(?:__)?/|test_[^/]*$|[^/]*[_.](?:test|spec)\.\w+$|conftest\.py$)"
)
_MAX_DEPTH = 3
_LITERAL = re.compile(
    r"\b(?:const|let|var|readonly|static)\s+(?P<name>[A-Za-z_$][\w$]*)\s*(?::\s*string\s*)?=\s*"
    r"`(?P<text>(?:[^`\\]|\\.)*)`",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_USER = frozenset(["user", "human"])


def code_candidates(source: str, text: str) -> list[Candidate | LeftOut]:
    """The prompts in a file of code; none in tests, in broken code, or in a data set.

    A string that is put together where it stands cannot be a text of its own: it is left out, with
    that reason.
    """
    if _TESTS.search(source):
        return []
    found = _python(source, text) if source.endswith(".py") else _script(source, text)
    kept = [f for f in found if f is not None]
    return kept if len(kept) <= MAX_PROMPTS else []


def _python(source: str, text: str) -> list[Candidate | LeftOut | None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [_candidate(source, name, node) for name, node in _strings(tree, "", 0)]


def _script(source: str, text: str) -> list[Candidate | LeftOut | None]:
    """The template literals of JavaScript and TypeScript."""
    found: list[Candidate | LeftOut | None] = []
    for match in _LITERAL.finditer(text):
        name, literal = match["name"], match["text"]
        if not names_a_prompt(name, name.lower()):
            continue
        if "${" in literal and is_prose(literal) and len(literal) >= _LEAST_CHARS:
            reason = "a literal with values that are computed where it stands; make it a template"
            found.append(LeftOut(path=f"{source}#{name}", reason=reason))
        elif "${" not in literal:
            found.append(_of_text(source, name, _ESCAPE.sub(_unescaped, literal)))
    return found


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r", "\n": ""}.get(match[1], match[1])


def _strings(tree: ast.AST, prefix: str, depth: int) -> Iterator[tuple[str, ast.expr]]:
    """The values that are bound to a name that speaks of prompts, in modules and classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and depth < _MAX_DEPTH:
            yield from _strings(node, f"{prefix}{node.name}.", depth + 1)
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if len(targets) != 1 or not isinstance(targets[0], ast.Name) or value is None:
            continue
        if names_a_prompt(targets[0].id.lower()):
            yield f"{prefix}{targets[0].id}", value


def _candidate(source: str, name: str, node: ast.expr) -> Candidate | LeftOut | None:
    if isinstance(node, ast.JoinedStr):
        words = "".join(str(p.value) for p in node.values if isinstance(p, ast.Constant))
        if len(words) < _LEAST_CHARS or not is_prose(words):
            return None
        reason = "an f-string: its values are computed where it stands; make it a template"
        return LeftOut(path=f"{source}#{name}", reason=reason)
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    return _of_text(source, name, node.value)


def _of_text(source: str, name: str, text: str) -> Candidate | None:
    text = text.strip("\n") + "\n"
    if len(text) < _LEAST_CHARS or not is_prose(text):
        return None
    spoken = {w.lower() for w in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    user = bool(_USER & spoken) and "system" not in spoken
    kind = SectionKind.USER if user else SectionKind.SYSTEM_PROMPT
    piece = text_piece(text, "user" if user else "system", kind)
    return Candidate(source=source, key=name, pieces=(piece,))
