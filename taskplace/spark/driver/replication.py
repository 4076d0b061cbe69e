"""The replicator: a thread that visits executors, so that their copies follow, and new executors become members.

It runs beside the batches, in a scheduler pool of its own, one slot per executor at most, and touches nothing
that a batch decides: it applies committed files, makes snapshots of committed versions, removes left-over
copies, and reports. Whatever fails here costs freshness, never correctness. Whom it visits when is for whoever makes
the orders to say.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from taskplace.spark.cluster import Cluster, Executor
from taskplace.spark.messages import Orders, Visit
from taskplace.spark.worker.follow import visit_all

log = logging.getLogger(__name__)

POOL = "taskplace-replication"
TICK_SECONDS = 0.5

#: Gives the visits to make now: each an executor and its orders.
OrdersFor = Callable[[], Sequence[tuple[Executor, Orders]]]


def send(bridge: Cluster, orders: Sequence[tuple[Executor, Orders]], tag: str) -> list[Visit]:
    """Visit executors, all in one pinned job, and return their answers."""
    elements = [order.encode() for _, order in orders]
    locations = [None if bridge.local else executor.location for executor, _ in orders]
    job = bridge.pinned(elements, locations, visit_all)
    watch = frozenset(executor.id for executor, _ in orders)
    return [
        Visit.decode(answer)
        for answer in bridge.run(job, range(len(orders)), tag=tag, watch=watch, pool=POOL)
    ]


class Replicator:
    """Visits executors whenever there is something to do there.

    `during` is entered before the orders are made, and left when the answers are taken in: what they name must not
    be pruned meanwhile, and a snapshot that nobody knows of yet would look superfluous.
    """

    def __init__(
        self,
        bridge: Cluster,
        orders_for: OrdersFor,
        absorb: Callable[[list[Visit]], bool],
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.visits = 0
        self._bridge, self._orders_for, self._absorb, self._during = bridge, orders_for, absorb, during
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, also after a stop; starting it while it runs does nothing."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = self._bridge.thread(self._loop, "taskplace-replicator")
            self._thread.start()

    def wake(self) -> None:
        """Say that there may be something to do."""
        self._wake.set()

    def stop(self, timeout: float = 30.0) -> None:
        """Stop, after the visit that is under way."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def round(self) -> bool:
        """Make one round of visits; return whether it got anything done, so that another may."""
        with self._during():
            orders = self._orders_for()
            if not orders:
                return False
            self.visits += 1
            return self._absorb(send(self._bridge, orders, tag=f"taskplace-visit-{self.visits}"))

    def _loop(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(TICK_SECONDS)
            self._wake.clear()
            if self._stopped.is_set():
                return
            try:
                while self.round() and not self._stopped.is_set():
                    pass
            except Exception as error:
                if not self._stopped.is_set():
                    log.warning("replication: %s: %s; trying again", type(error).__name__, error)
