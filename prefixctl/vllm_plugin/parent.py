"""A server that works for one command alone ends with it, however the command ends."""

from __future__ import annotations

import ctypes
import os
import signal

from prefixctl.engine.launch import ENDS_WITH

PR_SET_PDEATHSIG = 1
"""``linux/prctl.h``."""


def end_with_parent() -> bool:
    """Let the kernel end this process politely when its parent does, if the parent wants that.

    Returns:
        Whether it does.
    """
    if os.environ.get(ENDS_WITH) != str(os.getppid()):
        return False
    done = bool(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) == 0)
    if os.environ[ENDS_WITH] != str(os.getppid()):
        os.kill(os.getpid(), signal.SIGTERM)  # it ended just before
    return done
