"""The replicator: a thread that starts visits to executors, and rebalances while no batch runs.

In visits, copies follow and new executors join.

Visits run beside the batches, in their own scheduler pool, with at most one slot per executor. They change nothing
that a batch decides: they apply committed files, make snapshots of committed versions, remove left-over
copies, and report. A failed visit makes standbys fall behind, but never makes a result wrong. `followers` decides which
executors are visited, and when; `visits` has the visits that run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence

from taskplace.logs import RepeatedWarnings
from taskplace.spark.cluster import Cluster
from taskplace.spark.driver.followers import POLL_SECONDS, Order, Visits, raise_error
from taskplace.spark.driver.logged_errors import log_repeated_failure

log = logging.getLogger(__name__)

#: Seconds between two looks for work if nothing wakes the replicator.
TICK_SECONDS = 0.5
#: Seconds without visits to an executor whose visit has failed.
PAUSE_SECONDS = 1.0

#: The key of a warning about a turn; those about visits have the instance.
TURN = ""

#: Returns the visits to make now, to other instances than these.
OrdersFor = Callable[[Collection[str]], Sequence[Order]]


class Replicator:
    """Has executors visited whenever there is something to do there.

    One thread begins visits and takes in their reports, as they come. An executor is visited again at once if its visit
    made progress. Otherwise it is visited after `wake` or the next tick; after a failed visit, not before a pause.
    `rebalance` is called with each look for work; what it changes counts for the visits that begin then.
    """

    def __init__(
        self,
        bridge: Cluster,
        orders_for: OrdersFor,
        visits: Visits,
        rebalance: Callable[[], object] = lambda: None,
    ) -> None:
        self._bridge, self._orders_for, self._visits = bridge, orders_for, visits
        self._rebalance = rebalance
        self._woken = self._looked = 0.0  # the times of the last `wake`, and of the last look for work
        self._in_vain: set[str] = set()  # without progress in their last visit; until the next tick
        self._pauses: dict[str, float] = {}  # by instance: the end of its pause after a failed visit
        self._repeated = RepeatedWarnings()
        self._stopped = threading.Event()
        self._deadline = 0.0  # after a stop: until then, running visits may end
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, also after a stop. Does nothing while the thread runs."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = self._bridge.thread(self._loop, "taskplace-replicator")
            self._thread.start()

    def wake(self) -> None:
        """Look for work at once: there may be something to do."""
        self._woken = time.monotonic()
        self._visits.notify()

    def stop(self, timeout: float = 30.0) -> None:
        """Begin no more visits, and wait for the running visits. After `timeout` seconds, they are cancelled."""
        self._deadline = time.monotonic() + timeout
        self._stopped.set()
        self._visits.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout + TICK_SECONDS)

    def round(self) -> bool:
        """Make all useful visits in this thread; return whether one made progress, so that more may be useful.

        Errors: the first one of a visit. A lost executor is no error.
        """
        made = self._visits.make(self._orders_for(()))
        raise_error(made)
        return any(visit.progress for visit in made)

    # -- the thread

    def _loop(self) -> None:
        while not self._stopped.is_set():
            try:
                self._turn()
                self._repeated.settle(log, "replication works again", key=TURN)
            except Exception as error:
                if not self._stopped.wait(TICK_SECONDS):
                    log_repeated_failure(
                        log, self._repeated, TURN, "replication failed and is retried", error=error
                    )
        try:
            while self._visits.running() and time.monotonic() < self._deadline:
                self._visits.wait(min(POLL_SECONDS, max(0.0, self._deadline - time.monotonic())))
                self._visits.collect()
        except Exception as error:  # the session may have been stopped
            log.debug("the last visits are abandoned: %s", error)
        finally:
            self._visits.abandon()

    def _turn(self) -> None:
        """Wait for something to happen, take in reports, and begin visits if there may be work."""
        pause = POLL_SECONDS if self._visits.running() else TICK_SECONDS
        self._visits.wait(pause, lambda: self._woken > self._looked or self._stopped.is_set())
        if self._stopped.is_set():
            return
        ended = self._ended()
        now = time.monotonic()
        if self._woken > self._looked or now >= self._looked + TICK_SECONDS:
            self._looked = now
            self._in_vain.clear()
            self._rebalance()
        elif not ended:
            return
        self._pauses = {name: end for name, end in self._pauses.items() if end > now}
        resting = self._in_vain | self._pauses.keys()
        self._visits.begin(lambda running: self._orders_for({*running, *resting}))

    def _ended(self) -> int:
        """Take in the reports of the visits that have ended, and return their number."""
        ended = self._visits.collect()
        for visit in ended:
            name = visit.executor.instance
            if visit.lost:
                self._repeated.over(name)
                log.info("the visit to %s ended with its executor", name)
            elif visit.error is not None:
                self._pauses[name] = time.monotonic() + PAUSE_SECONDS
                if not visit.awaited:
                    said = "a visit to %s failed and is retried"
                    log_repeated_failure(log, self._repeated, name, said, name, error=visit.error)
            else:
                self._repeated.settle(log, "visits to %s succeed again", name, key=name)
                if not visit.progress and visit.began > self._woken:
                    self._in_vain.add(name)
        return len(ended)
