"""Shows the long work of a single command on standard error: bars on a terminal, a few lines anywhere else.

Standard output stays the command's answer: it can be piped and parsed while the bars run.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from taskplace.model.work import Show
from taskplace.record.events import WorkProgress
from taskplace.record.reporters import WorkLines

if TYPE_CHECKING:
    from taskplace.record.terminal import LiveBars

#: Work gets a bar only after this time, so that short work neither flickers nor loads rich.
BAR_SECONDS = 0.5


def redraws(stream: TextIO) -> bool:
    """Return whether what a stream shows can be redrawn in place: a terminal with a cursor, and not that of a CI."""
    try:
        terminal = stream.isatty()
    except ValueError:  # closed
        return False
    return terminal and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")


@contextlib.contextmanager
def long_work(stream: TextIO | None = None) -> Iterator[Show]:
    """Yield a function that shows `WorkProgress` within the block. Without a `stream` it is standard error.

    Bars are cleared at the end. Lines come only for work that takes longer than 2 s, and every 5 s at most.

    >>> from taskplace import simulate
    >>> with long_work() as show:
    ...     trajectory = simulate({"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}, progress=show)
    """
    stream = stream or sys.stderr
    if not redraws(stream):
        yield WorkLines(_Lines(stream).write).show
        return
    bars = _Bars(stream)
    try:
        yield bars.show
    finally:
        bars.close()


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> None:
        # ValueError: the stream was closed in this process; OSError: its reader is gone.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()


class _Bars:
    """Bars that appear after `BAR_SECONDS`, in a thread: until then the work may say nothing, or be over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lock = stream, threading.Lock()
        self._early: dict[str, WorkProgress] = {}
        self._timer: threading.Timer | None = None
        self._live: LiveBars | None = None
        self._closed = False

    def show(self, event: WorkProgress) -> None:
        with self._lock:
            if self._live is not None:
                self._live.show(event)
                return
            self._early[event.name] = event
            if self._timer is None:
                self._timer = threading.Timer(BAR_SECONDS, self._begin)
                self._timer.daemon = True
                self._timer.start()

    def _begin(self) -> None:
        from taskplace.record.terminal import LiveBars  # rich takes a while to load

        with self._lock:
            if self._closed:
                return
            self._live = LiveBars(self._stream)
            for event in self._early.values():
                self._live.show(event)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            if self._live is not None:
                self._live.close()
