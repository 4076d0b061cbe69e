"""The probing schedule: a timer that plans again while a follow-up is pending (KIP-441)."""

from __future__ import annotations

from collections.abc import Callable


class ProbingSchedule:
    """A timer that runs while the plan in force needs a follow-up.

    `next_at`: when it is due, in seconds of `clock`; None if no follow-up is pending.

    >>> now = [0.0]
    >>> schedule = ProbingSchedule(600_000, clock=lambda: now[0])
    >>> schedule.due(), schedule.planned(followup=True)
    (False, None)
    >>> now[0] = 600.0
    >>> schedule.due()
    True
    """

    def __init__(self, interval_ms: int, clock: Callable[[], float]) -> None:
        self.interval = interval_ms / 1000
        self.next_at: float | None = None
        self._clock = clock

    def planned(self, *, followup: bool) -> None:
        """Record a new plan: restart the timer if the plan needs a follow-up, else stop it."""
        self.next_at = self._clock() + self.interval if followup else None

    def due(self) -> bool:
        """Return whether the interval is over."""
        return self.next_at is not None and self._clock() >= self.next_at
