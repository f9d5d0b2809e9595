"""The process in which untrusted templates are rendered, started by `prefixctl.prompts.sandbox`.

It reads jobs from stdin and writes one outcome for each render to stdout. Before the first job it
gives up opening files, writing files, dumping core and using more memory than its budget, for
good. Its parent kills it when a job takes too long; should the parent be gone, a limit on its
processor time does.
"""

from __future__ import annotations

import posixpath
import random
import resource
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO

from jinja2 import (
    Environment,
    FunctionLoader,
    StrictUndefined,
    Template,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
)
from jinja2.exceptions import SecurityError
from jinja2.ext import do, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from prefixctl.prompts.chat import environment as chat_environment
from prefixctl.prompts.sandbox_frames import (
    HEADER,
    Dialect,
    Failure,
    FailureKind,
    Job,
    Outcome,
    Render,
    Returning,
    job_from_json,
    outcome_to_json,
    pack,
    unpack,
)

MESSAGE_CHARS = 400
STANDARD_FILES = 3


_OUT_OF_MEMORY = Outcome(
    failure=Failure(kind=FailureKind.MEMORY, message="it needs too much memory")
)

_LAZY = (
    "{{ 1 / 0 }}",
    "{% if %}",
    "{{ 名 }}",
    "{{ strftime_now('%A') }}{{ [1] | random }}{{ lipsum(n=1) }}{{ {} | pprint }}",
    "{{ 'a' | wordwrap(1) }}{{ date.strptime('1', '%d') }}",
)
"""Templates that make the interpreter load what it loads only when it is needed."""


class _TooMuchOutputError(Exception):
    """The output limit is passed."""


class _Clock:
    """A clock that stands still and notes what it is asked for."""

    def __init__(self) -> None:
        self.now = datetime(2025, 1, 1)
        self.formats: dict[str, None] = {}

    def strftime_now(self, pattern: str) -> str:
        self.formats[str(pattern)[:MESSAGE_CHARS]] = None
        return self.now.strftime(pattern)


class _Room:
    """How many characters a job may still print."""

    def __init__(self, chars: int) -> None:
        self.left = chars

    def take(self, text: str) -> str:
        self.left -= len(text)
        if self.left < 0:
            raise _TooMuchOutputError
        return text


class _Worker:
    """The environments, each made once, and the clock that they share."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._environments = {d: self._environment(d) for d in Dialect}

    def serve(self, job: Job, room: _Room) -> Iterator[Outcome]:
        """An outcome for each render of a job.

        Raises:
            MemoryError: If one needs too much memory.
        """
        try:
            template = self._template(job)
        except MemoryError:
            raise
        except Exception as exc:
            yield from [Outcome(failure=_failure(exc))] * len(job.renders)
            return
        for render in job.renders:
            self._clock.now = render.now
            self._clock.formats.clear()
            yield _outcome(template, render, room, self._clock)

    def warm_up(self) -> None:
        """Load what is loaded lazily, while files can still be opened."""
        values = {"date": datetime(2025, 1, 1)}
        for source in _LAZY:
            for dialect in Dialect:
                job = Job(source=source, renders=[Render(values=values)], dialect=dialect)
                list(self.serve(job, _Room(MESSAGE_CHARS)))

    def _template(self, job: Job) -> Template:
        made = self._environments[job.dialect]
        if made.cache is not None:
            made.cache.clear()
        made.loader = FunctionLoader(lambda name: job.files.get(posixpath.normpath(name)))
        return made.from_string(job.source)

    def _environment(self, dialect: Dialect) -> Environment:
        if dialect is Dialect.CHAT:
            made = chat_environment()
        elif dialect in {Dialect.SECTION, Dialect.SECTION_CRLF}:
            made = ImmutableSandboxedEnvironment(
                undefined=StrictUndefined,
                keep_trailing_newline=True,
                newline_sequence="\r\n" if dialect is Dialect.SECTION_CRLF else "\n",
            )
        else:
            made = ImmutableSandboxedEnvironment(
                keep_trailing_newline=True, extensions=[do, loopcontrols]
            )
        made.globals["strftime_now"] = self._clock.strftime_now
        return made


def main() -> int:
    """Serve jobs until stdin ends."""
    seconds, memory_bytes, output_chars = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    jobs, outcomes = sys.stdin.buffer, sys.stdout.buffer
    worker = _Worker()
    worker.warm_up()
    _give_up(memory_bytes)
    _write(outcomes, {"ready": True})
    while True:
        header = jobs.read(HEADER.size)
        if len(header) < HEADER.size:
            return 0
        (length,) = HEADER.unpack(header)
        _allow_processor_time(seconds)
        try:
            job = job_from_json(unpack(jobs.read(length)))
            for outcome in worker.serve(job, _Room(output_chars)):
                _write(outcomes, outcome_to_json(outcome))
        except MemoryError:
            _write(outcomes, outcome_to_json(_OUT_OF_MEMORY))


def _outcome(template: Template, render: Render, room: _Room, clock: _Clock) -> Outcome:
    random.seed(render.seed)
    values = {name: _callable(value) for name, value in render.values.items()}
    try:
        text = "".join([room.take(piece) for piece in template.generate(values)])
    except MemoryError:
        raise
    except Exception as exc:
        return Outcome(failure=_failure(exc), clock_formats=tuple(clock.formats))
    return Outcome(text=text, clock_formats=tuple(clock.formats))


def _callable(value: Any) -> Any:
    if isinstance(value, Returning):
        result = _callable(value.result)
        return lambda *_args, **_kwargs: result
    if isinstance(value, dict):
        return {k: _callable(v) for k, v in value.items()}
    return [_callable(v) for v in value] if isinstance(value, list) else value


def _failure(exc: Exception) -> Failure:
    kind, message = _kind(exc)
    return Failure(kind=kind, message=" ".join(message[:MESSAGE_CHARS].split()), line=_line(exc))


def _kind(exc: Exception) -> tuple[FailureKind, str]:
    if isinstance(exc, TemplateNotFound):
        return FailureKind.INCLUDE, f"it includes '{exc}', which is not among its files"
    if isinstance(exc, TemplateSyntaxError):
        return FailureKind.SYNTAX, f"broken template: {exc.message}"
    if type(exc) is TemplateError:
        return FailureKind.REFUSED, str(exc)
    for type_, kind, message in _KINDS:
        if isinstance(exc, type_):
            return kind, message.format(exc)
    return FailureKind.FAILED, f"{type(exc).__name__}: {exc}"


_KINDS = (
    (_TooMuchOutputError, FailureKind.OUTPUT, "it prints too much"),
    (SecurityError, FailureKind.FORBIDDEN, "it reaches for what is forbidden: {}"),
    (RecursionError, FailureKind.RECURSION, "it is nested, or calls itself, too deeply"),
)


def _line(exc: Exception) -> int | None:
    if isinstance(exc, TemplateSyntaxError):
        return exc.lineno
    line, trace = None, exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _give_up(memory_bytes: int) -> None:
    """Set limits that cannot be lifted again."""
    wanted = {
        resource.RLIMIT_AS: _used_address_space() + memory_bytes,
        resource.RLIMIT_NOFILE: STANDARD_FILES,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    for limit, value in wanted.items():
        _, hard = resource.getrlimit(limit)
        lower = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (lower, lower))


def _used_address_space() -> int:
    """Bytes of address space in use, so that the budget is what a template may add."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no pathlib here
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _allow_processor_time(seconds: float) -> None:
    used = int(time.process_time() + seconds) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used, hard))


def _write(outcomes: BinaryIO, message: dict[str, Any]) -> None:
    outcomes.write(pack(message))
    outcomes.flush()
