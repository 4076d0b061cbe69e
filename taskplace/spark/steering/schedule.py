"""Decides when a steering round is due.

A round is due once after each batch. While the query waits, a round is also due in these cases: one was requested;
drains were requested or taken back on any handle; the executors have changed; the round after the last batch failed. No
round is due in the middle of a batch, because its tasks hold the stores that would move.
"""

from __future__ import annotations

from typing import NamedTuple

from taskplace.spark.steering.application import SteeredApplication


class DueRound(NamedTuple):
    """A round that is due after `batch`. `ran`: the batch has ended since the last round."""

    batch: int
    ran: bool


class RoundSchedule:
    """Decides when rounds of one query are due.

    Lifetime: any thread sets `requested`; the start of a round clears it. `failed_batch` is the batch whose
    round is running, or has failed last. `_drains_version` is that of the last round.
    """

    def __init__(self, app: SteeredApplication) -> None:
        self.requested = True  # run one round as soon as possible
        self.failed_batch: int | None = None
        self._app = app
        self._drains_version = app.queries.drains_version

    def due(self, last: int) -> DueRound | None:
        """Return the round that is due now, None if none is. `last`: the batch of the last round, -1 without."""
        finished = self._app.finished_batch()
        new = finished not in (-1, last)
        if not new or finished == self.failed_batch:
            # A failed round is repeated once the query waits, so that it does not disturb a running batch.
            waits = (last < 0 and not new) or self._app.bridge.between_batches()
            if not (waits and (new or self._is_requested())):
                return None
        return DueRound(last if finished < 0 else finished, new)

    def begin(self, due: DueRound) -> None:
        """Note that a round begins; it serves all requests so far."""
        self._drains_version = self._app.queries.drains_version
        self.requested = False
        self.failed_batch = due.batch if due.ran else None

    def succeeded(self) -> None:
        """Note that the round has succeeded."""
        self.failed_batch = None

    def _is_requested(self) -> bool:
        drains = self._app.queries.drains_version != self._drains_version
        return self.requested or drains or self._app.executors.changed()
