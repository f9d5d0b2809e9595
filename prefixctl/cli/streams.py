"""Standard output that may be full or closed: an error of its own, not a bug and not silence.

A pipe whose reader went away is neither: the command ends without a word.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from prefixctl.errors import ClosedPipeError, OutputError


class GuardedOutput:
    """A text stream whose write errors are `OutputError`; it knows whether it was written to."""

    def __init__(self, stream: TextIO | io.TextIOBase) -> None:
        self._stream = stream
        self.used = False

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            OutputError: If the stream does not take it.
        """
        self.used = self.used or bool(text)
        with _refused():
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts. Errors as in `write`."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand over what was written. Errors as in `write`."""
        with _refused():
            self._stream.flush()

    def give_up(self) -> None:
        """Send the rest to nowhere, so that nothing fails once more at the end of the process."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Closed(io.TextIOBase):
    """Stands for a standard output that was closed before the process began."""

    def write(self, _: str) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


@contextmanager
def guarded_stdout() -> Iterator[GuardedOutput]:
    """Standard output guarded for a while."""
    before = sys.stdout
    guarded = GuardedOutput(_Closed() if before is None else before)
    sys.stdout = guarded
    try:
        yield guarded
    finally:
        sys.stdout = before


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as exc:
        raise ClosedPipeError("the reader of standard output went away") from exc
    except OSError as exc:
        raise OutputError(f"standard output cannot be written: {exc.strerror}") from exc
    except UnicodeEncodeError as exc:
        raise OutputError(
            f"standard output is {exc.encoding}, which has no '{exc.object[exc.start]}'",
            hint="set PYTHONIOENCODING=utf-8, or a locale with UTF-8",
        ) from exc
