"""``python -m prefixctl`` is the same as ``prefixctl``."""

from __future__ import annotations

import os
import signal
from types import FrameType

_INTERRUPTED = 130


def run() -> None:
    """Load the command line and run it; an interrupt while it loads ends with a word, too."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # who ignores it, as nohup does, goes on to
        signal.signal(signal.SIGINT, _leave)
    from prefixctl.cli.main import run as run_command_line  # noqa: PLC0415

    signal.signal(signal.SIGINT, before)
    run_command_line()


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
