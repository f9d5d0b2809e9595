"""What an expression in Go, TypeScript, Java and their like prints, by its looks alone."""

from __future__ import annotations

import re
from dataclasses import replace

from prefixctl.core.findings import Confidence
from prefixctl.core.prompt import Volatility
from prefixctl.lint.evaluate.formats import format_volatility
from prefixctl.lint.evaluate.names import cause_of
from prefixctl.lint.evaluate.value import (
    EMPTY,
    Cause,
    CauseKind,
    Hole,
    Site,
    Value,
    choose,
    hole_value,
    holes_value,
)

_CLOCK = re.compile(
    r"new Date\(\)|\bDate\.now\(|\btime\.Now\(|\bLocal(?:Date|Time|DateTime)\.now\("
    r"|\bInstant\.now\(|\bZonedDateTime\.now\(|\bDateTime(?:Offset)?\.(?:Utc)?(?:Now|Today)\b|\b(?:Utc|Local)::now\("
    r"|\b(?:Time|DateTime|Date)\.(?:now|current|today)\b|\b(?:dayjs|moment)\(\)"
    r"|\bcurrentTimeMillis\(|\bClock\.System\.now\(|\bSystemTime::now\(|\bCarbon::now\("
)
_DAY = re.compile(
    r"toDateString|toLocaleDateString|LocalDate\.now|\.Today\b|Date\.(?:current|today)|date_naive"
    r"|toISOString\(\)\s*\.(?:slice|substring|substr)\(0,\s*10\)|\.split\(['\"`]T['\"`]\)\s*\[0\]"
    r"|ToShortDateString|ToLongDateString|getFullYear|\.Year\(\)"
)
_FORMAT = re.compile(
    r"[fF]ormat(?:\w*)?\(\s*['\"`]([^'\"`]+)|ToString\(\s*\"([^\"]+)|strftime\(\s*['\"]([^'\"]+)"
)
_RANDOM = re.compile(
    r"uuid|randomUUID|Math\.random|nanoid|NewGuid|\brand\.|SecureRandom|\brandom\(", re.IGNORECASE
)
_QUOTED = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"")
_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\?\.|\.|::|->)[A-Za-z_$][\w$]*)*")
_PLUMBING = frozenset(
    ["JSON", "String", "Number", "Array", "Object", "await", "this", "self", "new", "return", "if",
     "else", "null", "undefined", "true", "false", "nil", "fmt", "strings", "typeof", "async",
     "Date", "Boolean", "Math", "in", "of", "let", "const", "var", "function", "i", "index"]
)  # fmt: skip
_METHODS = re.compile(
    r"\.(?:map|join|trim|toString|stringify|filter|slice|toLowerCase|toUpperCase|length|Sprintf"
    r"|Join|String|format|to_string|clone|as_str|concat|replace|split|reduce|size|isEmpty)\b.*"
)


def code_value(expression: str, offset: int) -> Value:
    """What an expression prints.

    Args:
        expression: Its source.
        offset: The offset in the file at which it is reported.
    """
    place = Site(1, offset=offset)
    computed = _computed(expression)
    if computed is not None:
        return hole_value(Hole(computed, place, place))
    causes = [_cause(n) for n in _names(expression)]
    known = [c for c in causes if c.volatility is not None]
    holes = [Hole(c, place, place) for c in known or causes[:1]]
    value = holes_value(holes)
    guarded = re.search(r"\?(?!\.|\?)|&&", expression) is not None
    return choose([value, EMPTY]) if guarded else value


def _computed(expression: str) -> Cause | None:
    clock = _CLOCK.search(expression)
    if clock:
        name = clock.group().rstrip("(").replace("new Date()", "new Date") + "()"
        return Cause(name, CauseKind.CLOCK, _resolution(expression), Confidence.HIGH,
                     "it reads the clock", fixed=True)  # fmt: skip
    random = _RANDOM.search(_QUOTED.sub("", expression))
    if random and "(" in expression:
        return Cause(f"{random.group().rstrip('(')}()", CauseKind.RANDOM, Volatility.REQUEST,
                     Confidence.HIGH, "it draws a random value", fixed=True)  # fmt: skip
    return None


def _resolution(expression: str) -> Volatility:
    if _DAY.search(expression):
        return Volatility.DAY
    pattern = _FORMAT.search(expression)
    if pattern is None:
        return Volatility.SECOND
    text = next(g for g in pattern.groups() if g)
    return _go_resolution(text) if "2006" in text or "15:04" in text else format_volatility(text)


def _go_resolution(pattern: str) -> Volatility:
    """A layout of Go, which is written as the reference time."""
    if "05" in pattern:
        return Volatility.SECOND
    if "04" in pattern:
        return Volatility.MINUTE
    return Volatility.HOUR if re.search(r"15|03|3 ?PM", pattern) else Volatility.DAY


def _names(expression: str) -> list[str]:
    found = []
    for name in _NAME.findall(_QUOTED.sub("", expression)):
        path = re.sub(r"\?\.|::|->", ".", name)
        path = re.sub(r"^(?:this|self|await|ctx|props|args|params|input|options|opts)\.", "", path)
        path = _METHODS.sub("", path)
        if path and path not in _PLUMBING and path.split(".")[0] not in {"JSON", "strings", "fmt"}:
            found.append(path)
    return found


def _cause(name: str) -> Cause:
    cause = cause_of(name)
    if name.rsplit(".", 1)[-1].isupper() and cause.kind is not CauseKind.CLOCK:
        return replace(cause, kind=CauseKind.SETTLED, volatility=None, reason="it is a constant")
    return cause
