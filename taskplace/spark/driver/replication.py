"""The replicator: a thread that visits executors, so that their copies follow, and new executors become members.

Visits run beside the batches, in their own scheduler pool, with at most one slot per executor. They change nothing
that a batch decides: they apply committed files, make snapshots of committed versions, remove left-over
copies, and report. A failed visit makes standbys fall behind, but never makes a result wrong. `followers` decides which
executors are visited, and when.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from taskplace.spark.cluster import Cluster, Executor
from taskplace.spark.messages import FollowReport, FollowRequest
from taskplace.spark.worker.follow import visit_all

log = logging.getLogger(__name__)

POOL = "taskplace-replication"
TICK_SECONDS = 0.5

#: Returns the visits to make now: each an executor and its requests.
RequestsFor = Callable[[], Sequence[tuple[Executor, FollowRequest]]]


def send(bridge: Cluster, requests: Sequence[tuple[Executor, FollowRequest]], tag: str) -> list[FollowReport]:
    """Visit executors in one pinned job, and return the visits' reports."""
    elements = [request.encode() for _, request in requests]
    locations = [None if bridge.local else executor.location for executor, _ in requests]
    job = bridge.pinned(elements, locations, visit_all)
    watch = frozenset(executor.id for executor, _ in requests)
    return [
        FollowReport.decode(answer)
        for answer in bridge.run(job, range(len(requests)), tag=tag, watch=watch, pool=POOL)
    ]


class Replicator:
    """Visits executors whenever there is something to do there.

    `during` is entered before the requests are made, and left after the reports are taken in. Meanwhile the files that
    the requests name must not be pruned, nor new snapshots that no manifest names yet.
    """

    def __init__(
        self,
        bridge: Cluster,
        requests_for: RequestsFor,
        absorb: Callable[[list[FollowReport]], bool],
        during: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.visits = 0
        self._bridge, self._requests_for, self._absorb, self._during = bridge, requests_for, absorb, during
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, also after a stop. Does nothing while the thread runs."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = self._bridge.thread(self._loop, "taskplace-replicator")
            self._thread.start()

    def wake(self) -> None:
        """Run the next round at once: there may be something to do."""
        self._wake.set()

    def stop(self, timeout: float = 30.0) -> None:
        """Stop after the running visit."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def round(self) -> bool:
        """Make one round of visits; return whether it made progress, so that another round may be useful."""
        with self._during():
            requests = self._requests_for()
            if not requests:
                return False
            self.visits += 1
            return self._absorb(send(self._bridge, requests, tag=f"taskplace-visit-{self.visits}"))

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
                    log.warning("replication failed and is retried: %s: %s", type(error).__name__, error)
