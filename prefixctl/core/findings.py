"""What lint and audit report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from prefixctl.core.prompt import Volatility


class Severity(IntEnum):
    """How bad a finding is."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        """The word used in files and messages."""
        return self.name.lower()


class Confidence(IntEnum):
    """How sure a finding is."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2

    @property
    def label(self) -> str:
        """The word used in files and messages."""
        return self.name.lower()


class Verdict(StrEnum):
    """What lint says of a whole file: the worst printed value ahead of shareable text."""

    OK = "ok"
    WARN = "warn"
    BREAK = "break"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in a source file. Lines and columns count from 1, columns in characters."""

    path: str
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that lint found.

    Attributes:
        rule: The id, for example ``PFX101``.
        name: The rule's name, which reads well after "allow".
        severity: How bad.
        confidence: How sure.
        location: Where.
        message: What, in one sentence, with its evidence.
        advice: A place where the value may go instead.
        variable: The expression it is about, if any.
        volatility: How often that value changes, if it does.
        tokens_lost: Shareable tokens behind that point, if they could be counted.
        fingerprint: Names the finding wherever its line moves to; empty until a report is whole.
    """

    rule: str
    name: str
    severity: Severity
    confidence: Confidence
    location: Location
    message: str
    advice: str = ""
    variable: str | None = None
    volatility: Volatility | None = None
    tokens_lost: int | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """A finding that a comment in the file allows, with the reason given there."""

    finding: Finding
    reason: str
