"""Rendering templates that nobody here wrote: bounded in time, memory and output.

A template is rendered in a process of its own that can open no file and is killed when it takes
too long. The process is started once and serves many jobs; a new one takes the place of a killed
one. Whatever a template does is an outcome, never an exception.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
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
WORKER = "prefixctl.prompts.sandbox_worker"
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
        # It gets this process's import path and nothing else of its environment.
        environment = {
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "PYTHONHASHSEED": "0",
        }
        figures = (limits.seconds, limits.memory_bytes, limits.output_chars)
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", WORKER, *map(str, figures)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
        self._max_frame_bytes = limits.output_chars * _BYTES_PER_CHAR + _FRAME_OVERHEAD_BYTES
        self._finalizer = weakref.finalize(self, _kill, self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            os.set_blocking(_open(pipe).fileno(), False)
        try:
            self.receive(time.monotonic() + START_SECONDS)
        except (_WorkerGoneError, TimeoutError, ValueError) as exc:
            self.kill()
            raise PrefixctlError("the process that renders templates does not start") from exc

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
