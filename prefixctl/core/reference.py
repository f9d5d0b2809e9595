"""References to versions of prompts, as people write them: ``support-agent@3``."""

from __future__ import annotations

MOST_DIGITS = 9
"""More are no number of a version, but a slip or an attack."""
SHOWN_CHARS = 40
"""Of a wrong reference in a message."""


def version_number(text: str) -> int | None:
    """The number of a version; None if the text is none."""
    good = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if good else None
