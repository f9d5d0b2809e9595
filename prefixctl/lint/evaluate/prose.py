"""How many words of natural language a text has."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W\d_]{2,}")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def count_words(text: str) -> int:
    """The words of a text; two characters of Chinese, Japanese or Korean count as one."""
    wide = len(_WIDE.findall(text))
    if not wide:
        return len(_WORD.findall(text))
    return len(_WORD.findall(_WIDE.sub(" ", text))) + wide // 2
