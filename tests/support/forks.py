"""Waiting for a forked process, so that none is left behind."""

from __future__ import annotations

import os
import signal


def wait_for(child: int, options: int = 0) -> int:
    """Return the status of a forked process, as `os.waitpid` does.

    If the wait is interrupted (by the timeout of the test, or by Ctrl-C), the process is killed first: it would go on
    changing the files that the test checks or removes next, and errors from that would hide the interruption.
    """
    try:
        return os.waitpid(child, options)[1]
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
