"""Rendering templates that nobody here wrote: bounded in time, memory and output.

A template is rendered in a process of its own that can open no file and is killed when it takes
too long. The process is started once and serves many jobs; a new one takes the place of a killed
one. Whatever a template does is an outcome, never an exception.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from prefixctl.errors import PrefixctlError
from prefixctl.prompts.sandbox_frames import (
    HEADER,
    Dialect,
    Failure,
    FailureKind,
    Job,
    Outcome,
    Render,
    Returning,
    job_to_json,
    outcome_from_json,
    pack,
    unpack,
)

__all__ = [
    "Dialect", "Failure", "FailureKind", "Job", "Limits", "Outcome", "Render", "Returning",
    "Sandbox", "shared_sandbox",
]  # fmt: skip

MIB = 1024 * 1024
START_SECONDS = 20.0
CHUNK_BYTES = 1 << 16
SERVE = """\
import json, sys
home, others = json.loads(sys.argv.pop(1))
sys.path.insert(0, home)
import prefixctl
sys.path.pop(0)
sys.path += [p for p in others if p not in sys.path]
from prefixctl.prompts.sandbox_worker import main
sys.exit(main())
"""
"""What the worker runs. It has this very package; all else comes behind the standard library."""
_BYTES_PER_CHAR = 6
_FRAME_OVERHEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a job may use, all its renders together.

    Attributes:
        seconds: Time on the wall from handing it over.
        memory_bytes: Beyond what the idle process has.
        output_chars: Characters printed.
    """

    seconds: float = 1.4
    memory_bytes: int = 400 * MIB
    output_chars: int = 4 * MIB


@functools.cache
def shared_sandbox() -> Sandbox:
    """One sandbox for all of this process; its worker starts with the first job."""
    return Sandbox()


class _WorkerGoneError(Exception):
    """The worker ended, or says what makes no sense."""


class Sandbox:
    """A worker process that renders templates. Use it as a context manager.

    Safe to use from several threads; their jobs wait for one another.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        """Nothing is started before the first job."""
        self.limits = limits or Limits()
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process. A later job starts another one."""
        with self._lock:
            self._end()

    def render(self, job: Job) -> tuple[Outcome, ...]:
        """Render a job: one outcome for each of its renders, in order.

        What one render did to reach a limit, the ones behind it have reached as well.

        Raises:
            PrefixctlError: If no worker process can be started.
        """
        message = pack(job_to_json(job))
        with self._lock:
            worker = self._started()
            outcomes: list[Outcome] = []
            deadline = time.monotonic() + self.limits.seconds
            try:
                worker.send(message, deadline)
                while len(outcomes) < len(job.renders):
                    outcome = outcome_from_json(worker.receive(deadline))
                    outcomes.append(outcome)
                    if outcome.failure and outcome.failure.kind is FailureKind.MEMORY:
                        break
            except TimeoutError:
                outcomes.append(Outcome(failure=self._too_slow()))
            except (_WorkerGoneError, ValueError, TypeError, OSError):
                outcomes.append(Outcome(failure=_CRASHED))
            except BaseException:
                self._end()
                raise
            missing = len(job.renders) - len(outcomes)
            if missing or (outcomes and outcomes[-1].failure and _ends(outcomes[-1].failure)):
                self._end()
            return (*outcomes, *outcomes[-1:] * missing)

    def _too_slow(self) -> Failure:
        return Failure(
            kind=FailureKind.TIME, message=f"it does not end within {self.limits.seconds:g} s"
        )

    def _started(self) -> _Worker:
        if self._worker is None or not self._worker.is_alive:
            self._end()
            self._worker = _Worker(self.limits)
        return self._worker

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


_CRASHED = Failure(kind=FailureKind.CRASHED, message="it takes the process down that renders it")


def _ends(failure: Failure) -> bool:
    """Whether the worker is no longer to be used."""
    return failure.kind in {FailureKind.TIME, FailureKind.MEMORY, FailureKind.CRASHED}


class _Worker:
    """One process and its two pipes, which are never waited for beyond a deadline."""

    def __init__(self, limits: Limits) -> None:
        figures = (limits.seconds, limits.memory_bytes, limits.output_chars)
        arguments = [json.dumps(import_path()), *map(str, figures)]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                [sys.executable, "-P", "-c", SERVE, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PYTHONHASHSEED": "0"},
                cwd=Path(sys.executable).anchor or os.sep,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as exc:
            raise _not_started(f"{sys.executable or 'Python'}: {exc.strerror or exc}") from exc
        self._max_frame_bytes = limits.output_chars * _BYTES_PER_CHAR + _FRAME_OVERHEAD_BYTES
        self._finalizer = weakref.finalize(self, _kill, self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            os.set_blocking(_open(pipe).fileno(), False)
        said = _open(self._process.stderr)
        try:
            self.receive(time.monotonic() + START_SECONDS)
        except TimeoutError as exc:
            self.kill()
            raise _not_started(f"it is not ready after {START_SECONDS:g} s") from exc
        except (_WorkerGoneError, ValueError) as exc:
            self._process.kill()
            lines = said.read().decode(errors="replace").strip().splitlines()
            self.kill()
            cause = lines[-1] if lines else f"it ended with {self._process.returncode}"
            raise _not_started(cause) from exc
        finally:
            said.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._finalizer()

    def send(self, message: bytes, deadline: float) -> None:
        pipe = _open(self._process.stdin)
        rest = memoryview(message)
        while rest:
            _wait(pipe, selectors.EVENT_WRITE, deadline)
            rest = rest[os.write(pipe.fileno(), rest[:CHUNK_BYTES]) :]

    def receive(self, deadline: float) -> dict[str, object]:
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline))
        if length > self._max_frame_bytes:
            raise _WorkerGoneError
        return unpack(self._read(length, deadline))

    def _read(self, length: int, deadline: float) -> bytes:
        pipe = _open(self._process.stdout)
        data = bytearray()
        while len(data) < length:
            _wait(pipe, selectors.EVENT_READ, deadline)
            piece = os.read(pipe.fileno(), min(length - len(data), CHUNK_BYTES))
            if not piece:
                raise _WorkerGoneError
            data += piece
        return bytes(data)


def import_path() -> tuple[str, list[str]]:
    """The folder that holds this package, and where else the worker may import from.

    That is this process's import path without the working directory: a linted folder often is the
    working directory, and what lies in it is data, never code.
    """
    home = Path(__file__).resolve().parents[2]
    left_out = {home}
    with contextlib.suppress(OSError):  # a working directory that is gone
        left_out.add(Path().resolve())
    given = [Path(p) for p in sys.path if p]
    return str(home), [str(p) for p in given if p.is_absolute() and p.resolve() not in left_out]


def _not_started(cause: str) -> PrefixctlError:
    return PrefixctlError(
        f"the process that renders templates does not start: {cause}",
        hint="templates are rendered by the Python that runs prefixctl, in a process of its own; "
        "check that installation",
    )


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise _WorkerGoneError
    return pipe


def _wait(pipe: IO[bytes], event: int, deadline: float) -> None:
    """Wait until a pipe is ready.

    Raises:
        TimeoutError: At the deadline.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, event)
        left = deadline - time.monotonic()
        if left <= 0 or not selector.select(left):
            raise TimeoutError


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
