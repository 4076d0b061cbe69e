"""The bounded log of a driver: its last events, for the status file, and what keeps copies from following.

The batch thread and the replicator append, and the thread of `taskplace.spark.driver.operations` reads. An entry costs
a microsecond and never fails. Rebalances also go to the logger `taskplace`, and their moves to `taskplace.tasks`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from taskplace.errors import TaskplaceError
from taskplace.logs import fields
from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced
from taskplace.record.words import rebalance_line
from taskplace.spark.messages import FollowReport, Position
from taskplace.spark.operator_messages import FailedBatch, RunningBatch, StoppedBatch
from taskplace.spark.worker.guard import shown_error
from taskplace.wording import duration
from topology import TaskId

LOG = logging.getLogger("taskplace")
TASKS = logging.getLogger("taskplace.tasks")

#: How many events of each kind are kept, and how many moves of a rebalance.
KEPT, MOVES_KEPT = 10, 6

_EventT = TypeVar("_EventT", BatchDone, Rebalanced, ExecutorLost)


class EventLog:
    """The last events of one driver. Thread-safe. `changes` counts what a status should show soon."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.changes = 0
        self.running: RunningBatch | None = None
        self.failed: FailedBatch | None = None
        self.stopped: StoppedBatch | None = None
        self._clock, self._lock = clock, threading.Lock()
        self._events: dict[type, deque[BatchDone | Rebalanced | ExecutorLost]] = {
            kind: deque(maxlen=KEPT) for kind in (BatchDone, Rebalanced, ExecutorLost)
        }

    def add(self, event: BatchDone | Rebalanced | ExecutorLost) -> None:
        """Append an event."""
        if isinstance(event, Rebalanced):
            _log(event)
            event = event.shortened(MOVES_KEPT)
        with self._lock:
            self.changes += not isinstance(event, BatchDone)  # its end counts
            self._events[type(event)].append(event)

    def last(self, kind: type[_EventT]) -> tuple[_EventT, ...]:
        """Return the last events of a kind, oldest first."""
        with self._lock:
            return tuple(self._events[kind])  # type: ignore[arg-type]

    @contextmanager
    def batch(
        self, number: int, stopped: Callable[[BaseException], bool] = lambda error: False
    ) -> Iterator[None]:
        """Note that a batch runs within this block, and its error if it fails.

        - `stopped`: whether an error came of a stop of the query. Spark cancels the batch then, which is an error for
          the batch and no failure of the stream. An error of taskplace is always a failure
        """
        self.running = RunningBatch(number, self._clock())
        self.changes += 1
        try:
            yield
        except Exception as error:
            was_stopped = False
            with suppress(Exception):  # Spark itself may have ended
                was_stopped = not isinstance(error, TaskplaceError) and stopped(error)
            if was_stopped:
                self.failed, self.stopped = None, StoppedBatch(self._clock(), number)
            else:
                self.failed, self.stopped = FailedBatch(self._clock(), number, shown_error(error)), None
            raise
        else:
            self.failed = self.stopped = None
        finally:
            self.running = None
            self.changes += 1


def _log(event: Rebalanced) -> None:
    """Log a rebalance: a line for it, and one for each move. Their fields are in the record, for lines of JSON."""
    common = {"batch": event.batch_id, "generation": event.generation}
    line = {
        **common,
        "reason": event.reason,
        "moves_planned": event.planned,
        "moves_forced": event.promotions,
        "warmups": event.warmups,
        "followup": event.followup,
        "latency_ms": round(1000 * event.seconds, 3),
    }
    took = duration(event.seconds)
    LOG.info("%s; %s", rebalance_line(event), took, extra=fields("rebalance", **line))
    if TASKS.isEnabledFor(logging.DEBUG):
        for one in event.changes:
            what = {"task": one.task, "role": one.role, "from": one.origin, "to": one.to, "why": one.why}
            TASKS.debug("generation %d: %s", event.generation, one, extra=fields("move", **common, **what))


@dataclass
class _Contact:
    """When an executor last answered, why its last follow job failed, and why its copies cannot follow."""

    answered: float | None = None
    failed: str = ""
    copies: dict[TaskId, str] = field(default_factory=dict)


class FollowErrors:
    """Why copies cannot follow, and when executors last answered. Lifetime: one for each driver.

    Used under the lock of the `Rebalancer`. Times are seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._executors: dict[str, _Contact] = defaultdict(_Contact)

    def answered(
        self, report: FollowReport, before: Mapping[TaskId, Position], wanted: Collection[TaskId]
    ) -> None:
        """Note a follow job's report. `before`: the executor's positions so far; `wanted`: that should follow.

        An error is over when its copy has moved on, loads a snapshot, or is not wanted any more.
        """
        one = self._executors[report.instance]
        one.answered, one.failed = self._clock(), ""
        for task in one.copies.keys() - report.errors.keys():
            moved = task in report.restoring or report.copies.get(task) != before.get(task)
            if moved or task not in wanted:
                del one.copies[task]
        one.copies.update({task: why for task, why in report.errors.items() if task in wanted})

    def failed(self, instance: str, error: Exception) -> None:
        """Note a follow job that has failed as a whole."""
        self._executors[instance].failed = shown_error(error)

    def keep(self, members: Collection[str]) -> None:
        """Forget the executors that are not members."""
        for name in self._executors.keys() - set(members):
            del self._executors[name]

    def of(self, instance: str) -> dict[TaskId, str]:
        """Return why copies of an instance cannot follow, as far as its follow jobs have said."""
        return dict(self._executors[instance].copies)

    def contact(self, instance: str) -> tuple[float | None, str]:
        """Return when an instance last answered a follow job, and why its last follow job failed: "" if it did not."""
        one = self._executors[instance]
        return one.answered, one.failed
