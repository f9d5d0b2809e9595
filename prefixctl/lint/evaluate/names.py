"""What a variable's name says about how often its value changes.

The lexicon is `words.yaml`. A name is split into words (snake, camel and upper case, digits), the
words are looked up, and of a dotted path the part that changes most often counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate.value import Cause, CauseKind
from prefixctl.yamlfile import load_value

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+|[^\W\d_A-Za-z]+")
SETTLED_ENDINGS = frozenset(
    ["instruction", "instructions", "rule", "rules", "guideline", "guidelines", "policy",
     "policies", "template", "templates", "format", "schema", "style", "tone", "mode", "type",
     "types", "enabled", "count", "counts", "limit", "size", "length", "max", "min", "config",
     "settings", "prefix", "suffix", "token", "tokens", "header", "heading", "title", "label",
     "window", "threshold", "version", "language", "tag", "tags", "separator", "delimiter",
     "example", "examples", "schemas", "budget", "option", "options", "flag", "category",
     "categories", "metric", "metrics", "criteria", "name", "names", "description",
     "descriptions"]
)  # fmt: skip
"""A name that ends so speaks of the application's own text or settings, not of a request's."""
_FEW_SHOT = frozenset(
    ["example", "examples", "shot", "shots", "demonstration", "demonstrations", "exemplar",
     "exemplars"]
)  # fmt: skip
_COUNTING = frozenset(["num", "number", "max", "min", "top", "total", "n", "enable", "has", "use"])
_LEADING = frozenset(["get", "fetch", "format", "render", "to", "compute", "the", "my", "your"])
_CJK = (
    ("时间", CauseKind.CLOCK, Volatility.SECOND),
    ("日期", CauseKind.CLOCK, Volatility.DAY),
    ("会话", CauseKind.SESSION, Volatility.SESSION),
    ("租户", CauseKind.TENANT, Volatility.TENANT),
    ("公司", CauseKind.TENANT, Volatility.TENANT),
    ("问题", CauseKind.REQUEST, Volatility.REQUEST),
    ("查询", CauseKind.REQUEST, Volatility.REQUEST),
    ("历史", CauseKind.REQUEST, Volatility.REQUEST),
    ("用户", CauseKind.USER, Volatility.USER),
    ("客户", CauseKind.USER, Volatility.USER),
    ("姓名", CauseKind.USER, Volatility.USER),
    ("身份证", CauseKind.USER, Volatility.USER),
    ("手机号", CauseKind.USER, Volatility.USER),
    ("检索", CauseKind.REQUEST, Volatility.REQUEST),
    ("请求编号", CauseKind.RANDOM, Volatility.REQUEST),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    kind: CauseKind
    volatility: Volatility
    confidence: Confidence
    phrases: tuple[tuple[str, ...], ...]
    unless: frozenset[str]
    only: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What a name says.

    Attributes:
        kind: SETTLED for the application's own text, UNKNOWN if it says nothing.
        volatility: None for those two.
        confidence: How sure.
        word: The words that said it.
    """

    kind: CauseKind
    volatility: Volatility | None
    confidence: Confidence
    word: str = ""


_UNKNOWN = Guess(kind=CauseKind.UNKNOWN, volatility=None, confidence=Confidence.LOW)


@lru_cache(maxsize=8192)
def guess_name(name: str) -> Guess:
    """What one name says, without its attributes."""
    words = split_words(name)
    while len(words) > 1 and words[0] in _LEADING:
        words = words[1:]
    if not words:
        return _UNKNOWN
    if name.isascii():
        return _by_lexicon(words)
    for text, kind, volatility in _CJK:
        if text in name:
            return Guess(kind=kind, volatility=volatility, confidence=Confidence.HIGH, word=text)
    return _UNKNOWN


@lru_cache(maxsize=8192)
def guess_path(path: str) -> Guess:
    """What a dotted path says: its part that changes most often; of a clock, the part shown.

    A list of fixed examples stays fixed, whatever its entries are called.
    """
    parts = path.split(".")
    if len(parts) > 1 and parts[0] == "datetime":
        parts = parts[1:]
    if _FEW_SHOT & set(split_words(parts[0])):
        return Guess(kind=CauseKind.SETTLED, volatility=None, confidence=Confidence.LOW)
    guesses = [guess_name(p) for p in parts]
    if len(parts) > 1 and guesses[-1].kind is CauseKind.UNKNOWN:
        together = guess_name("_".join(parts[-2:]))
        if together.confidence is Confidence.HIGH:
            return together
        guesses.append(together)
    known = [g for g in guesses if g.volatility is not None]
    if guesses[0].kind is CauseKind.SETTLED:
        known = [g for g in known if g.confidence is Confidence.HIGH]
    clocks = len(known) > 1 and all(g.kind is CauseKind.CLOCK for g in known)
    if clocks and known[-1] is guesses[-1]:
        return known[-1]
    if known:
        return max(known, key=lambda g: (g.volatility or 0, g.confidence))
    return guesses[0]


def is_unknown(path: str) -> bool:
    """Whether a name neither says how often its value changes, nor that it is the application's."""
    ending = split_words(path.rsplit(".", 1)[-1])[-1:]
    return guess_path(path).kind is CauseKind.UNKNOWN and not SETTLED_ENDINGS & {*ending}


def cause_of(variable: str) -> Cause:
    """The cause that a variable of that (dotted) name is."""
    guess = guess_path(variable)
    if guess.volatility is None:
        return Cause(variable, guess.kind, None, Confidence.LOW, "its name says nothing")
    reason = f"its name says '{guess.word}'"
    return Cause(variable, guess.kind, guess.volatility, guess.confidence, reason)


def split_words(name: str) -> tuple[str, ...]:
    """The words of a name in lower case: ``currentDate_UTC`` is current, date, utc."""
    return tuple(w.lower() for w in _WORD.findall(name))


def _by_lexicon(words: tuple[str, ...]) -> Guess:
    present = set(words)
    for entry in _lexicon():
        if entry.unless & present or (entry.only and not present <= entry.only):
            continue
        for phrase in entry.phrases:
            if present.issuperset(phrase):
                return _guess(entry, phrase, words)
    return _UNKNOWN


def _guess(entry: _Entry, phrase: tuple[str, ...], words: tuple[str, ...]) -> Guess:
    settled = words[-1] in SETTLED_ENDINGS - set(phrase) or words[0] in _COUNTING - set(phrase)
    weak = entry.kind is CauseKind.REQUEST or (
        entry.kind in {CauseKind.USER, CauseKind.SESSION} and words[-1] != "name"
    )
    if entry.kind is CauseKind.SETTLED or (settled and weak):
        return Guess(kind=CauseKind.SETTLED, volatility=None, confidence=Confidence.LOW)
    return Guess(
        kind=entry.kind,
        volatility=entry.volatility,
        confidence=entry.confidence,
        word=" ".join(phrase),
    )


@cache
def _lexicon() -> tuple[_Entry, ...]:
    data = resources.files("prefixctl.lint.evaluate").joinpath("words.yaml").read_bytes()
    return tuple(_entry(e) for e in load_value(data, "words.yaml"))


def _entry(raw: dict[str, Any]) -> _Entry:
    return _Entry(
        kind=CauseKind(raw["kind"]),
        volatility=Volatility[raw["volatility"].upper()],
        confidence=Confidence[raw["confidence"].upper()],
        phrases=tuple(tuple(str(p).split()) for p in raw["all"]),
        unless=frozenset(map(str, raw.get("unless", ()))),
        only=frozenset(map(str, raw.get("only", ()))),
    )
