"""SIGTERM during a command."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from taskplace.cli.run import interrupted_by_sigterm


def test_the_first_one_interrupts_and_later_ones_do_not_disturb_the_end():
    before, done = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(KeyboardInterrupt), interrupted_by_sigterm():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("cleaned up")
    assert done == ["cleaned up"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_leaves_signals_alone():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def inside():
        with interrupted_by_sigterm():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]
