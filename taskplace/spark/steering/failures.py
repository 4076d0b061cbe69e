"""Counts failed rounds, and decides when to stand down."""

from __future__ import annotations

from dataclasses import dataclass, replace

from taskplace.spark.steering.decide import StandDown

MOST_ERRORS = 3
"""Steering stands down after this many failed rounds in a row."""


@dataclass(frozen=True)
class Failures:
    """Failed rounds. Immutable.

    `total`: all failed rounds. `in_a_row`: those since the last success that counts. `after_batch`: one of those in a
    row was a round after a batch. Then only the success of a round after a batch counts, because a round between
    batches may have nothing to send.
    """

    total: int = 0
    in_a_row: int = 0
    after_batch: bool = False

    def add(self, *, after_batch: bool) -> Failures:
        """Return the failures with one more."""
        return Failures(self.total + 1, self.in_a_row + 1, self.after_batch or after_batch)

    def after_success(self, *, after_batch: bool) -> Failures:
        """Return the failures after a round that succeeded."""
        return self.forgiven() if after_batch or not self.after_batch else self

    def forgiven(self) -> Failures:
        """Return the failures with the count in a row reset."""
        return replace(self, in_a_row=0, after_batch=False)

    @property
    def too_many(self) -> bool:
        """Whether to stand down."""
        return self.in_a_row >= MOST_ERRORS

    @staticmethod
    def stand_down(last: Exception) -> StandDown:
        """Return why steering stands down after too many failures."""
        reason = f"{MOST_ERRORS} errors in a row inside steering, the last {type(last).__name__}: {last}"
        return StandDown(reason, "see the log for the first of them, then resume()")
