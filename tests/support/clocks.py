"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Returns `seconds` when it is called."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds
