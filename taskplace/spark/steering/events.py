"""The events of a handle: each appears once in the log and in the status."""

from __future__ import annotations

from dataclasses import dataclass

from taskplace.spark.steering.decide import StandDown
from taskplace.spark.steering.status import Decision

EVENTS_KEPT = 20


@dataclass(frozen=True)
class Events:
    """The last `EVENTS_KEPT` events, and the number of all events. Immutable.

    >>> Events().add("resumed").add("stopped")
    Events(last=('resumed', 'stopped'), total=2)
    """

    last: tuple[str, ...] = ()
    total: int = 0

    def add(self, text: str) -> Events:
        """Return the events with one more."""
        return Events((*self.last, text)[-EVENTS_KEPT:], self.total + 1)


@dataclass(frozen=True)
class LoggedDecisions:
    """The decisions that were logged so far. Immutable.

    `decision`: the last decision, logged or not. `text`: of the last decision that was logged. `stood_down`: the
    stand-down that was logged, None after a decision without one.
    """

    decision: Decision | None = None
    text: str = ""
    stood_down: StandDown | None = None

    def text_to_log(self, decision: Decision) -> str:
        """Return the text to log for a decision; empty if it adds nothing to what was logged."""
        if decision.stood_down:
            new = decision.stood_down != self.stood_down
        else:
            new = bool(decision.moves or decision.why)
        text = str(decision)
        return text if new and text != self.text else ""

    def add(self, decision: Decision) -> LoggedDecisions:
        """Return the record after `text_to_log(decision)` was logged."""
        return LoggedDecisions(decision, self.text_to_log(decision) or self.text, decision.stood_down)
