"""A thread that takes a step again and again, until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable

STOP_SECONDS = 30.0
"""`stop` waits for a step under way no longer than this."""


class PollingThread:
    """Calls `step` on a thread of its own; the step returns how many seconds to wait before the next, None to end."""

    def __init__(self, name: str, step: Callable[[], float | None]) -> None:
        self._step = step
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Take the next step at once."""
        self._wake.set()

    def stop(self) -> None:
        """Take no further step, and wait for the one under way, unless called from within it."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            pause = self._step()
            if pause is None:
                return
            self._wake.wait(pause)
            self._wake.clear()
