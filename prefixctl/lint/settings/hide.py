"""Secrets in the lines that a report shows, comments included: found by what stands before them.

A launch's own secrets are known by `secret_values`. A line may hold others: in an address, in a
comment, or in JSON that no rule reads.
"""

from __future__ import annotations

import re

from prefixctl.lint.evaluate.names import split_words

HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^\s/@\"'<>`]+(?=@)")
"""Who logs in, and with what, in an address."""
_VALUE = re.compile(
    r"(?<![\w.])(?P<name>[A-Za-z_][\w.-]{0,100}+)"
    r"(?P<between>\\?[\"']?\s*(?:[:=]\s*|,\s*(?=\\?[\"'])|(?<![:,])[ \t]+))"
    r"(?P<value>\\?\"(?:[^\"\\]|\\(?!\"))*|\\?'[^']*|\$\{[^}\s]*\}|[^\s,;\"'\]}]+)"
)
"""A name and its value: ``--name value``, ``NAME=value``, ``"name": "value"``."""
_SECRETS = frozenset(
    ["token", "secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase", "key",
     "keys", "apikey", "credential", "credentials", "salt"]
)  # fmt: skip
_POINTERS = frozenset(
    ["file", "path", "dir", "name", "ref", "id", "env", "size", "count", "length"]
)
"""What a name ends in whose value only leads to a secret, or counts something."""
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+\}|\(.*)|\{\{.*")
_COMMAND = ("--", "ENV ", "ARG ")
"""What a name and its value stand behind where a space parts them."""


def hide(text: str) -> str:
    """A line with its secrets hidden. What a variable brings stays: the file does not say it."""
    return _named(_USER.sub(HIDDEN, text))


def _named(text: str) -> str:
    parts, at = [], 0
    while found := _VALUE.search(text, at):
        start = found.start("value")
        if _is_secret(text, found):
            quote = re.match(r"\\?[\"']?", found["value"])
            start += quote.end() if quote else 0
            parts += [text[at:start], HIDDEN]
            at = found.end()
        else:
            parts.append(text[at:start])
            at = start
    return "".join([*parts, text[at:]])


def _is_secret(text: str, found: re.Match[str]) -> bool:
    words = [w for part in found["name"].split(".") for w in split_words(part)]
    if not words or words[-1] in _POINTERS or not _SECRETS & {*words}:
        return False
    is_given = text[: found.start()].endswith(_COMMAND)
    told = found["between"].strip(" \t\\\"'")[:1]
    if told not in {":", "="} and not is_given:
        return False  # words of a sentence, or of a list
    value = found["value"].strip("\\\"'")
    return bool(value) and not value.startswith("-") and not _VARIABLE.fullmatch(value)
