"""A thread that calls a function repeatedly, until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable

STOP_SECONDS = 30.0
"""`stop` waits at most this long for a running step."""


class PollingThread:
    """Calls `step` repeatedly on its own thread. `step` returns the seconds until the next call, or None to end."""

    def __init__(self, name: str, step: Callable[[], float | None]) -> None:
        self._step = step
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Run the next step at once."""
        self._wake.set()

    def stop(self) -> None:
        """Run no further step, and wait for the running one, unless it makes this call itself."""
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
