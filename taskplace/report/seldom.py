"""Decides which events of long work are worth a line in a log."""

from __future__ import annotations

from taskplace.record.events import WorkProgress

#: Work that takes less time gets no line of its own.
LONG_SECONDS = 2.0
#: The least time between two lines of one work. It grows to half of the time that the work has taken.
LINE_SECONDS = 5.0


class Seldom:
    """The first line is due after `LONG_SECONDS`, then one now and then, and one at the end of long work.

    Work that is not counted is due at once, because nothing else would be seen of it. `in_pairs`: work that had a line
    also gets one at its end, however short it was; for programs.
    """

    def __init__(self, *, in_pairs: bool = False) -> None:
        self._in_pairs = in_pairs
        self._next: dict[
            str, float
        ] = {}  # by name of the work: when its next line is due, in seconds of the work

    def due(self, event: WorkProgress) -> bool:
        """Return whether a line is due now; then the event counts as written."""
        if event.ended:
            begun = self._next.pop(event.name, None) is not None
            return event.seconds >= LONG_SECONDS or (self._in_pairs and begun)
        if event.seconds < self._next.get(event.name, LONG_SECONDS if event.unit else 0.0):
            return False
        self._next[event.name] = event.seconds + max(LINE_SECONDS, event.seconds / 2)
        return True
