"""Tells brokers that take records, if slowly, from brokers that take none, by what a producer has been acknowledged.

**Idea.** A producer's length is the number of records that it has not yet been told of. What was sent, without these,
was acknowledged or has failed; a failure is noticed elsewhere. So no callback for each record is needed.

Properties: a client reports a lost connection also for a broker that no record waits for, such as one of three that is
down. So the time in which brokers could not be reached has both: a report in this try, and looks at the producer that
have found nothing new, for `STALL` seconds at least.
"""

from __future__ import annotations

import time
from collections.abc import Sized

#: Acknowledgements come in groups; a pause between them that is shorter is none, in seconds.
STALL = 2.0


class Progress:
    """The records of one try. `begun`: when it began; `sent`: what the client has taken so far."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.sent = self.acknowledged = 0
        self._lost, self._disturbed = 0.0, False
        self._went_on = self._looked = self.begun

    def seen(self, producer: Sized, *, disturbed: bool = False, waiting: bool = False) -> bool:
        """Look at a producer, and return whether more records were acknowledged since the last look.

        - `disturbed`: whether the client has reported a lost connection since the last look
        - `waiting`: whether brokers are waited for although they may have acknowledged all records
        """
        before, self.acknowledged = self.acknowledged, max(self.acknowledged, self.sent - len(producer))
        self._disturbed = self._disturbed or disturbed
        went_on, now = self.acknowledged > before, time.monotonic()
        if went_on or (self.acknowledged == self.sent and not waiting):
            self._lost, self._went_on = self._lost + self._stalled(), now
        self._looked = now
        return went_on

    def lost(self) -> float:
        """Return for how long brokers could not be reached and took no record, in seconds."""
        return self._lost + self._stalled() if self._disturbed else 0.0

    def _stalled(self) -> float:
        """Return for how long the looks until now have found nothing new."""
        stalled = self._looked - self._went_on
        return stalled if stalled >= STALL else 0.0
