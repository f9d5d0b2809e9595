"""Whether a string in a configuration file or in source code is a prompt, by name and by looks."""

from __future__ import annotations

import re

from prefixctl.lint.evaluate.names import split_words
from prefixctl.lint.evaluate.prose import count_words

NAMED_WORDS = 6
"""Words that a string under a prompt's name has at least."""
UNNAMED_WORDS = 25
"""Words that a string under any other name has at least."""
_PROMPT_NAMES = frozenset(
    ["prompt", "prompts", "template", "templates", "instruction", "instructions", "system",
     "jinja", "preamble", "persona", "backstory", "instruct", "rubric"]
)  # fmt: skip
_OUTRIGHT = frozenset(["prompt", "prompts", "system", "preamble"])
_TURN_NAMES = frozenset(["user", "human", "assistant", "ai", "message", "messages", "content",
                         "text", "goal", "role", "few", "query", "task"])  # fmt: skip
_OTHER_NAMES = frozenset(
    ["sql", "html", "regex", "pattern", "url", "path", "css", "usage", "license", "log", "error",
     "help", "epilog", "doc", "docs", "docstring", "changelog", "readme", "comment", "email"]
)  # fmt: skip
_OTHER_TEXT = re.compile(
    r"\s*(?:SELECT\s|INSERT\s+INTO|CREATE\s+(?:TABLE|INDEX|OR)|UPDATE\s+\w+\s+SET|DELETE\s+FROM"
    r"|WITH\s+\w+\s+AS\s*\(|<!DOCTYPE|<html|<svg|<\?xml|https?://\S+\s*\Z|#!/|import\s+\w+\n"
    r"|usage:|Copyright|\{\s*\"|\$\{\{)",
    re.IGNORECASE,
)
_ADDRESSED = re.compile(
    r"\byou (?:are|will|must|should|have|can)\b|\byour (?:task|job|role|goal|answer|response)\b"
    r"|\b(?:answer|respond|reply|summari[sz]e|classify|translate|extract|generate|rewrite) "
    r"(?:the|in|with|to|only|as|all|each|into|this|a)\b|你是|请|回答",
    re.IGNORECASE,
)
_HOLE = re.compile(
    r"\{\{[^{}]+\}\}|\{%[^%]{1,400}%\}|\{[^\W\d]\w*(?:[.\[][^{}\s]*)?\}|\$\{?[A-Za-z_]\w*|<[A-Z_]{3,}>",
    re.DOTALL,
)


def names_a_prompt(*names: str) -> bool:
    """Whether one of the names, from the outside in, says that a text is a prompt."""
    return any(_PROMPT_NAMES & set(split_words(n)) for n in names)


def calls_it_a_prompt(name: str) -> bool:
    """Whether a name calls a text a prompt outright; a template may be one of anything."""
    return bool(_OUTRIGHT & set(split_words(name)))


def names_a_turn(name: str) -> bool:
    """Whether a name says that a text is a turn of a conversation, or a part of one."""
    return bool(_TURN_NAMES & set(split_words(name)))


def names_another_thing(name: str) -> bool:
    """Whether a name says that a text is something else."""
    words = set(split_words(name))
    return bool(_OTHER_NAMES & words) and not _PROMPT_NAMES & words


def has_holes(text: str) -> bool:
    """Whether a text has something that looks like a placeholder."""
    return bool(_HOLE.search(text))


def is_prompt(text: str, *, named: bool, holes: bool | None = None) -> bool:
    """Whether a text reads as a prompt.

    Args:
        text: Its static text; placeholders may stand in it.
        named: Whether its name says so.
        holes: Whether it has placeholders; looked up in the text if it is not known.
    """
    if not named and _OTHER_TEXT.match(text):
        return False
    words = count_words(_HOLE.sub(" ", text))
    holes = has_holes(text) if holes is None else holes
    if words < NAMED_WORDS or not re.search(r"\s", text.strip()):
        return named and words >= 1 and holes
    if named:
        return True
    if words < UNNAMED_WORDS:
        return False
    return bool(_ADDRESSED.search(text)) or (words >= 2 * UNNAMED_WORDS and holes)
