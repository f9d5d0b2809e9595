"""What the sandbox and its worker process say to each other: jobs, outcomes, and their bytes.

Only JSON passes between the two: nothing that the worker sends is ever executed or unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any

HEADER = struct.Struct("!I")
_TAG = "$"
FAILURE_FIELDS = 3


class Dialect(StrEnum):
    """Which environment renders a template.

    ``section`` is for governed prompts: nothing undefined, line ends kept, `CRLF` as such.
    """

    CHAT = "chat"
    PROMPT = "prompt"
    SECTION = "section"
    SECTION_CRLF = "section_crlf"


class FailureKind(StrEnum):
    """Why a template gave no text."""

    TIME = "time"
    MEMORY = "memory"
    OUTPUT = "output"
    FORBIDDEN = "forbidden"
    INCLUDE = "include"
    RECURSION = "recursion"
    SYNTAX = "syntax"
    REFUSED = "refused"
    FAILED = "failed"
    CRASHED = "crashed"

    @property
    def is_hostile(self) -> bool:
        """Whether a limit of the sandbox ended it: no other values would help."""
        return self in _LIMITS


_LIMITS = frozenset([FailureKind.TIME, FailureKind.MEMORY, FailureKind.OUTPUT, FailureKind.CRASHED])


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a render gave no text.

    Attributes:
        kind: The kind.
        message: In one sentence.
        line: The 1-based line of the template, if known.
    """

    kind: FailureKind
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one render gave: a text or a failure.

    Attributes:
        text: The text; None if it failed.
        failure: Why it failed; None if it did not.
        clock_formats: The formats with which it asked for the time, each once.
    """

    text: str | None = None
    failure: Failure | None = None
    clock_formats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """A function among the values: it gives the same result whatever it is called with."""

    result: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Render:
    """One render of a job's template.

    Attributes:
        values: By variable name: JSON values, dates, `Returning`, and lists and dicts of them.
        now: What the clock shows; it stands still.
        seed: Of the random source.
    """

    values: Mapping[str, Any]
    now: datetime = datetime(2025, 1, 1)
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A template and how to render it.

    Attributes:
        source: The template.
        renders: What to render it with, one behind the other.
        dialect: The environment.
        files: All that it may include, by name.
    """

    source: str
    renders: Sequence[Render]
    dialect: Dialect = Dialect.CHAT
    files: Mapping[str, str] = field(default_factory=dict)


def pack(message: Mapping[str, Any]) -> bytes:
    """A message with its length ahead of it."""
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """A message from its bytes, without the length.

    Raises:
        ValueError: If they are no message.
    """
    message = json.loads(body.decode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise ValueError("no object")  # noqa: TRY004 - one error for all that is no message
    return message


def job_to_json(job: Job) -> dict[str, Any]:
    """A job as a message."""
    return {
        "source": job.source,
        "dialect": job.dialect.value,
        "files": dict(job.files),
        "renders": [
            {"values": _encoded(dict(r.values)), "now": r.now.isoformat(), "seed": r.seed}
            for r in job.renders
        ],
    }


def job_from_json(message: Mapping[str, Any]) -> Job:
    """A job from a message."""
    renders = [
        Render(values=_decoded(r["values"]), now=datetime.fromisoformat(r["now"]), seed=r["seed"])
        for r in message["renders"]
    ]
    return Job(
        source=message["source"],
        renders=renders,
        dialect=Dialect(message["dialect"]),
        files=message["files"],
    )


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as a message."""
    failure = outcome.failure
    return {
        "text": outcome.text,
        "clock_formats": outcome.clock_formats,
        "failure": failure and [failure.kind.value, failure.message, failure.line],
    }


def outcome_from_json(message: Mapping[str, Any]) -> Outcome:
    """An outcome from a message of a worker that may have been taken over.

    Raises:
        ValueError: If it is no outcome.
    """
    text, failure, formats = (message.get(k) for k in ("text", "failure", "clock_formats"))
    if not isinstance(formats, list):
        raise ValueError("no outcome")  # noqa: TRY004 - as in `unpack`
    if isinstance(text, str) and failure is None:
        return Outcome(text=text, clock_formats=tuple(map(str, formats)))
    if not isinstance(failure, list) or len(failure) != FAILURE_FIELDS:
        raise ValueError("no outcome")
    kind, said, line = failure
    made = Failure(
        kind=FailureKind(kind), message=str(said), line=line if isinstance(line, int) else None
    )
    return Outcome(failure=made, clock_formats=tuple(map(str, formats)))


def _encoded(value: Any) -> Any:
    if isinstance(value, dict):
        made = {str(k): _encoded(v) for k, v in value.items()}
        return {_TAG: "dict", "value": made} if _TAG in made else made
    if isinstance(value, (list, tuple)):
        return [_encoded(v) for v in value]
    if isinstance(value, (datetime, date)):
        return {_TAG: type(value).__name__, "value": value.isoformat()}
    if isinstance(value, Returning):
        return {_TAG: "returning", "value": _encoded(value.result)}
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    if not isinstance(value, dict):
        return value
    tag = value.get(_TAG)
    if tag is None:
        return {k: _decoded(v) for k, v in value.items()}
    inner = value["value"]
    if tag == "dict":
        return {k: _decoded(v) for k, v in inner.items()}
    if tag == "returning":
        return Returning(result=_decoded(inner))
    return datetime.fromisoformat(inner) if tag == "datetime" else date.fromisoformat(inner)
