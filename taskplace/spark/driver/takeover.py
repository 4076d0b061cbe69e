"""Takeover of a checkpoint by a driver: with its first batch, after everything that may be refused was checked.

A refused start must not stop a running stream. So a driver first reads, compares and checks, and only then takes the
next epoch, which fences the driver that had the last one.
"""

from __future__ import annotations

from collections.abc import Callable

from taskplace.errors import CheckpointError
from taskplace.spark.driver.journal import Journal
from taskplace.spark.driver.publishing import Publisher
from taskplace.spark.messages import Declaration


class Takeover:
    """One driver's takeover of a checkpoint. Another driver may take over later (`Journal.check_epoch`)."""

    def __init__(self, journal: Journal, publisher: Publisher) -> None:
        self._journal, self._publisher = journal, publisher
        self._compared = journal.declaration
        self.taken = False

    def take(self, batch_id: int, query: str | None, look: Callable[[], object]) -> None:
        """Take the checkpoint over, unless that was done. `look` reads the batch's rows first; they may be refused.

        Errors: `CheckpointError` when the checkpoint belongs to another query, when Spark's is at another batch, and
        when others have changed what this driver was compared with as it started; what `look` raises.
        """
        self._journal.bind("query", query)
        if self.taken:
            return

        def check(declaration: Declaration) -> None:
            if declaration != self._compared:
                raise CheckpointError(
                    f"{self._journal.root}: another driver has begun, or changed, it since this one started; "
                    "make another one"
                )
            self.check_batch(batch_id)

        if not self._journal.epoch:
            look()
            self._journal.take_over(check)
        self._publisher.bind(self._journal.declaration.id)
        self.taken = True

    def check_batch(self, batch_id: int) -> None:
        """Raise `CheckpointError` for any batch but the last one, to be published again, and the next.

        One before the last is refused, too: Spark would cut it anew, maybe with rows that were never seen.
        """
        if batch_id not in (last := self._journal.last_batch, last + 1):
            raise CheckpointError(
                f"{self._journal.root}: Spark's checkpoint is at batch {batch_id}, the placed state at batch {last}; "
                "they belong together: keep both, or start both anew"
            )
