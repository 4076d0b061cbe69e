"""Jobs and threads of a driver whose cluster runs everything at once, in the calling thread."""

from __future__ import annotations

import threading


class Ended:
    """A job that has ended before anybody asks."""

    def __init__(self, found: list[str], error: Exception | None = None) -> None:
        self.done = threading.Event()
        self.done.set()
        self._found, self._error = found, error

    def result(self) -> list[str]:
        if self._error is not None:
            raise self._error
        return self._found

    def cancel(self) -> None:
        """Do nothing."""


class NeverRuns(threading.Thread):
    """A thread that counts as started until `join` is called."""

    ended: bool | None = None

    def start(self) -> None:
        self.ended = False

    def is_alive(self) -> bool:
        return self.ended is False

    def join(self, timeout: float | None = None) -> None:
        self.ended = True
