"""Secrets and personal data that stand in a text, by their form.

A form that anybody can check (a prefix that one issuer uses, a check digit) counts by itself; one
that looks like many other things counts next to a word that names it. Samples that documentation
prints, and placeholders, count for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from prefixctl.lint.evaluate.names import split_words

LOOK_AROUND_CHARS = 40
SHOWN_CHARS = 4
"""Characters of a secret that a message shows."""
MIN_SECRET_CHARS = 8
MIN_PHONE_DIGITS = 9

_KEYS = re.compile(
    r"\b(?:sk-(?:proj-|ant-|or-|live-)?[A-Za-z0-9_-]{24,}|(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{20,}|AIza[0-9A-Za-z_-]{35}|hf_[A-Za-z0-9]{30,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{10,})"
    r"|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
)
"""Keys by the form that their issuers give them."""
_ASSIGNED = re.compile(
    r"(?:password|passwd|pwd|passphrase|secret|api[_ -]?key|access[_ -]?key|token|bearer|密码|口令)"
    r"[\"'`]?(?:\s*[:=：]\s*|\s+(?=[A-Za-z0-9+/_.-]{20,}))[\"'`]?(?P<value>[^\s\"'`<>{}$,;，。]{8,})",
    re.IGNORECASE,
)
_KEY_STARTS = ("sk-", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
               "glpat-", "xox", "AIza", "hf_", "eyJ", "-----BEGIN")  # fmt: skip
_RUN = re.compile(r"\d+")
_LETTER_AHEAD = re.compile(r"[A-Za-z]\S{0,2}\Z")
_LETTER_BEHIND = re.compile(r"\S{0,2}[A-Za-z]")
_MANY_DIGITS = re.compile(r"\d[\d -]{6}")
_IN_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:(?P<value>[^\s/@{}<>$]{4,})@")
_PLACEHOLDER = re.compile(
    r"your|example|sample|dummy|placeholder|change|xxx|\*\*\*|\.\.\.|redacted|test", re.IGNORECASE
)
_DIGITS = re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])")
_SSN = re.compile(r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\d-])")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_CHINESE_ID = re.compile(
    r"(?<!\w)[1-9]\d{5}(?:19|20)\d{2}(?:0[1-9]|1[0-2])\d{2}\d{3}[\dXx](?![\da-zA-Z])"
)
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}\b")
_PHONE = re.compile(r"(?<![\w-])(?:\+\d{1,3}[ -]?)?\(?\d{2,4}\)?(?:[ -]?\d{2,4}){2,4}(?![\w-])")
_DATE = re.compile(r"(?:19|20)\d\d-\d\d-\d\d")
_PERSONAL = re.compile(r"\b(?:private|personal|home|mobile|cell)\b|手机|私人|住址", re.IGNORECASE)
_SSN_WORDS = re.compile(r"social security|\bssn\b", re.IGNORECASE)
_PUBLISHED = frozenset(
    ["4111111111111111", "4242424242424242", "5555555555554444", "4012888888881881",
     "5105105105105100", "DE89370400440532013000", "GB82WEST12345698765432",
     "GB29NWBK60161331926819", "11010519491231002X", "123-45-6789", "078-05-1120"]
)  # fmt: skip
"""Samples of standards and vendors."""
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECK_DIGITS = "10X98765432"
_SECRET_NAMES = tuple(
    tuple(phrase.split())
    for phrase in (
        "password", "passwd", "passphrase", "secret", "secrets", "credentials", "api key", "apikey",
        "access token", "auth token", "bearer token", "refresh token", "private key", "secret key",
        "access key", "client secret", "connection string", "密码", "口令",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """Something private in a text.

    Attributes:
        what: What it is, with an article.
        start: Offset of its first character.
        end: Offset behind its last one.
    """

    what: str
    start: int
    end: int


def find_secrets(text: str) -> Iterator[Private]:
    """Keys, passwords and tokens, in the order of their forms."""
    starts = any(start in text for start in _KEY_STARTS)
    for found in _KEYS.finditer(text) if starts else ():
        if not _PLACEHOLDER.search(found.group()):
            yield Private(what="a key", start=found.start(), end=found.end())
    for found in _ASSIGNED.finditer(text) if _has_mixed_words(text) else ():
        if _is_secret(found["value"]) and not _KEYS.search(found["value"]):
            start, end = found.span("value")
            yield Private(what="a password or a token", start=start, end=end)
    for found in _IN_ADDRESS.finditer(text) if "://" in text else ():
        if not _PLACEHOLDER.search(found["value"]):
            start, end = found.span("value")
            yield Private(what="a password in an address", start=start, end=end)


def find_personal_data(text: str) -> Iterator[Private]:
    """Numbers and addresses of single people, in the order of their forms."""
    digits = _MANY_DIGITS.search(text) is not None
    near = (digits or "@" in text) and _PERSONAL.search(text) is not None
    for what, form, holds in (*(_NUMBERS if digits else ()), *(_ADDRESSES if near else ())):
        for found in form.finditer(text):
            if found.group() not in _PUBLISHED and holds(text, found):
                yield Private(what=what, start=found.start(), end=found.end())


@lru_cache(maxsize=8192)
def names_a_secret(variable: str) -> bool:
    """Whether a part of a dotted name ends like a secret's: ``db_password``, ``ctx.secrets.x``."""
    return any(
        words[-len(phrase) :] == phrase
        for words in map(split_words, variable.split("."))
        for phrase in _SECRET_NAMES
    ) or variable.endswith(("密码", "口令"))


def masked(text: str) -> str:
    """A text with its secrets hidden, but for their first characters."""
    for secret in sorted(find_secrets(text), key=lambda s: -s.start):
        text = text[: secret.start] + hidden(text[secret.start : secret.end]) + text[secret.end :]
    return text


def hidden(secret: str) -> str:
    """A secret as a message may show it."""
    return f"{secret[:SHOWN_CHARS]}***"


def _has_mixed_words(text: str) -> bool:
    """Whether letters stand next to digits, as in every password that counts."""
    return any(
        _LETTER_BEHIND.match(text, run.end())
        or _LETTER_AHEAD.search(text[max(0, run.start() - 3) : run.start()])
        for run in _RUN.finditer(text)
    )


def _is_secret(value: str) -> bool:
    value = value.rstrip(".)")
    letters = any(c.isalpha() for c in value)
    digits = any(c.isdigit() for c in value)
    return len(value) >= MIN_SECRET_CHARS and letters and digits and not _PLACEHOLDER.search(value)


def _is_card(_: str, found: re.Match[str]) -> bool:
    digits = [int(c) for c in found.group() if c.isdigit()]
    if "".join(map(str, digits)) in _PUBLISHED or digits[0] not in {3, 4, 5, 6}:
        return False
    doubled = [d if i % 2 == 0 else sum(divmod(2 * d, 10)) for i, d in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0 and len(set(digits)) > 1


def _is_iban(_: str, found: re.Match[str]) -> bool:
    number = found.group().replace(" ", "")
    if number in _PUBLISHED:
        return False
    moved = number[4:] + number[:4]
    return int("".join(str(int(c, 36)) for c in moved)) % 97 == 1


def _is_chinese_id(_: str, found: re.Match[str]) -> bool:
    number = found.group().upper()
    total = sum(w * int(c) for w, c in zip(_WEIGHTS, number[:17], strict=True))
    return number not in _PUBLISHED and _CHECK_DIGITS[total % 11] == number[17]


def _near(words: re.Pattern[str], text: str, found: re.Match[str]) -> bool:
    start = max(0, found.start() - LOOK_AROUND_CHARS)
    return words.search(text[start : found.end() + LOOK_AROUND_CHARS]) is not None


def _is_ssn(text: str, found: re.Match[str]) -> bool:
    return _near(_SSN_WORDS, text, found)


def _is_personal(text: str, found: re.Match[str]) -> bool:
    return _near(_PERSONAL, text, found) and not _PLACEHOLDER.search(found.group())


def _is_phone(text: str, found: re.Match[str]) -> bool:
    digits = sum(c.isdigit() for c in found.group())
    dated = _DATE.match(found.group()) is not None
    return digits >= MIN_PHONE_DIGITS and not dated and _is_personal(text, found)


_NUMBERS = (
    ("a card number", _DIGITS, _is_card),
    ("a social security number", _SSN, _is_ssn),
    ("an account number (IBAN)", _IBAN, _is_iban),
    ("an identity number", _CHINESE_ID, _is_chinese_id),
)
_ADDRESSES = (
    ("a private e-mail address", _EMAIL, _is_personal),
    ("a private phone number", _PHONE, _is_phone),
)
