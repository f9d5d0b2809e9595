"""YAML front matter: what it says of the prompt behind it, and where that begins."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prefixctl.lint.readers.tree import Tree, read_yaml
from prefixctl.lint.source import Source

_FRONT_MATTER = re.compile(
    r"\A(?:[ \t]*(?:#[^\n]*)?\n)*---[ \t]*\n(?P<yaml>(?:(?!---[ \t]*(?:\n|\Z))[^\n]*\n)*)"
    r"---[ \t]*(?:\n|\Z)"
)
_KEY_OR_COMMENT = re.compile(r"\s*(?:[\w-]+\s*:|#|\Z)")
_LOOK_CHARS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Front matter.

    Attributes:
        settings: What it says.
        end: Offset of the first character behind it.
    """

    settings: Tree
    end: int

    def text(self, *keys: str) -> str:
        """The text under a path of keys, or nothing."""
        found: Tree | None = self.settings
        for key in keys:
            found = found.get(key) if found is not None else None
        return found.value if found is not None and isinstance(found.value, str) else ""


def body_start(source: Source) -> int:
    """Where the text behind the front matter begins; 0 without any."""
    if "---" not in source.text[:_LOOK_CHARS]:
        return 0
    front = _FRONT_MATTER.match(source.text)
    return front.end() if front and _KEY_OR_COMMENT.match(front["yaml"]) else 0


def read_front(source: Source) -> Front | None:
    """Read the front matter of a prompt file, or None if it has none.

    Raises:
        UnreadableError: If it is no YAML, with the place in the file.
    """
    end = body_start(source)
    front = _FRONT_MATTER.match(source.text) if end else None
    if front is None:
        return None
    # The same lines with nothing else in them, so that places in it are places in the file.
    blank = re.sub(r"[^\n]", " ", source.text[: front.start("yaml")])
    tree = read_yaml(Source(source.path, blank + front["yaml"]))
    return Front(settings=tree, end=end)
