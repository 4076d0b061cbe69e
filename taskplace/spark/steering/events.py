"""The events of a handle: what it tells people, once each, in the log and in the status."""

from __future__ import annotations

from dataclasses import dataclass

from taskplace.spark.steering.decision import Decision
from taskplace.spark.steering.overrides import StandDown

EVENTS_KEPT = 20


@dataclass(frozen=True)
class Events:
    """The last `EVENTS_KEPT` events, and how many there were in all. Immutable.

    >>> Events().add("resumed").add("stopped")
    Events(last=('resumed', 'stopped'), total=2)
    """

    last: tuple[str, ...] = ()
    total: int = 0

    def add(self, text: str) -> Events:
        """Return these events and one more."""
        return Events((*self.last, text)[-EVENTS_KEPT:], self.total + 1)


@dataclass(frozen=True)
class Told:
    """What people have been told of the decisions so far. Immutable.

    `decision`: the last decision, told or not. `text`: of the last decision that was told. `stood_down`: the
    stand-down that was told, None after a decision without one.
    """

    decision: Decision | None = None
    text: str = ""
    stood_down: StandDown | None = None

    def news(self, decision: Decision) -> str:
        """Return what there is to tell of a decision; empty if it is no news."""
        if decision.stood_down:
            new = decision.stood_down != self.stood_down
        else:
            new = bool(decision.moves or decision.why)
        text = str(decision)
        return text if new and text != self.text else ""

    def tell(self, decision: Decision) -> Told:
        """Return this after the news of a decision was told."""
        return Told(decision, self.news(decision) or self.text, decision.stood_down)
