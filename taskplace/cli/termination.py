"""SIGTERM ends a command as Ctrl-C does: what runs is stopped in order, and says that it has ended.

Service managers and containers send SIGTERM, and kill what has not ended some time later.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Within this block, the first SIGTERM raises `KeyboardInterrupt`; later ones do nothing, while the block ends.

    Does nothing outside of the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
