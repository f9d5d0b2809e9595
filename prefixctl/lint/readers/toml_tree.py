"""TOML as a tree of values with their places in the file."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict

from prefixctl.lint.readers.tree import Tree
from prefixctl.lint.source import Source, UnreadableError

_STRING = re.compile(
    r"#[^\n]*"
    r"|(?P<long>\"\"\"(?:[^\\]|\\.)*?\"{3,5}|'''.*?'{3,5})"
    r"|(?P<short>\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')",
    re.DOTALL,
)
_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")
Places = dict[str, list[tuple[int, int]]]


def read_toml(source: Source) -> Tree:
    """Parse TOML.

    Raises:
        UnreadableError: With the place of the first thing that does not parse.
    """
    try:
        value = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as exc:
        place = _PLACE.search(str(exc))
        line, column = (
            (int(place[1]), int(place[2])) if place else source.position(len(source.text))
        )
        words = _PLACE.sub("", str(exc)).strip()
        raise UnreadableError(f"broken TOML: {words}", line=line, column=column) from exc
    except RecursionError as exc:
        raise UnreadableError("broken TOML: nested too deeply") from exc
    return _tree(value, _places(source.text))


def _places(text: str) -> Places:
    """Where each string stands, by its value, in the order of the file."""
    places: Places = defaultdict(list)
    for string in _STRING.finditer(text):
        raw = string["long"] or string["short"]
        if raw is None:
            continue
        quote = 3 if string["long"] else 1
        try:
            value = tomllib.loads(f"x = {raw}")["x"]
        except tomllib.TOMLDecodeError:
            continue
        places[value].append((string.start() + quote, string.end() - quote))
    return places


def _tree(value: object, places: Places) -> Tree:
    if isinstance(value, str):
        found = places.get(value) or [(0, 0)]
        start, end = found.pop(0) if len(found) > 1 else found[0]
        return Tree(value, start, end)
    if isinstance(value, dict):
        return Tree({str(k): _tree(v, places) for k, v in value.items()}, 0, 0)
    if isinstance(value, list):
        return Tree([_tree(v, places) for v in value], 0, 0)
    return Tree(None, 0, 0)
