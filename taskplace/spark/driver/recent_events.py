"""The last events of a driver, for its status: batches, rebalances, lost executors, and the error of a failed batch.

The batch thread notes events, and the thread of `taskplace.spark.driver.operations` reads them. A note costs a
microsecond and never fails.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from taskplace.errors import TaskplaceError
from taskplace.record.events import ExecutorLost, Rebalanced
from taskplace.redaction import scrubbed
from taskplace.spark.operator_messages import (
    BatchStatus,
    FailedBatch,
    LossStatus,
    RebalanceStatus,
    RunningBatch,
    StoppedBatch,
)

#: How many events of each kind are kept.
KEPT = 10
MOVES_SHOWN = 6
#: The most letters of an error.
ERROR_LETTERS = 500


class RecentEvents:
    """The last events of one driver. Thread-safe. `changes` counts the events."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.changes = 0
        self.running: RunningBatch | None = None
        self.failed: FailedBatch | None = None
        self.stopped: StoppedBatch | None = None
        self._clock, self._lock = clock, threading.Lock()
        self._batches: deque[BatchStatus] = deque(maxlen=KEPT)
        self._rebalances: deque[RebalanceStatus] = deque(maxlen=KEPT)
        self._losses: deque[LossStatus] = deque(maxlen=KEPT)

    # -- notes

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
            if not isinstance(error, TaskplaceError) and _true(stopped, error):
                self.failed, self.stopped = None, StoppedBatch(self._clock(), number)
            else:
                self.failed, self.stopped = FailedBatch(self._clock(), number, shown_error(error)), None
            raise
        else:
            self.failed = self.stopped = None
        finally:
            self.running = None
            self.changes += 1

    def batch_done(self, number: int, rows: int, seconds: float) -> None:
        """Note a batch that was committed and published."""
        with self._lock:
            self._batches.append(BatchStatus(self._clock(), number, rows, seconds))

    def rebalanced(self, event: Rebalanced) -> None:
        """Note a new assignment."""
        with self._lock:
            self.changes += 1
            self._rebalances.append(
                RebalanceStatus(
                    at=self._clock(),
                    generation=event.generation,
                    batch=event.batch_id,
                    reason=event.reason,
                    moves=len(event.moves),
                    promotions=event.promotions,
                    warmups=event.warmups,
                    followup=event.followup,
                    shown=event.moves[:MOVES_SHOWN],
                )
            )

    def lost(self, event: ExecutorLost) -> None:
        """Note the loss of an executor."""
        with self._lock:
            self.changes += 1
            self._losses.append(
                LossStatus(self._clock(), event.instance, event.batch_id, event.tasks, event.leaving)
            )

    # -- questions

    def batches(self) -> tuple[BatchStatus, ...]:
        """Return the last batches, oldest first."""
        with self._lock:
            return tuple(self._batches)

    def rebalances(self) -> tuple[RebalanceStatus, ...]:
        """Return the last rebalances, oldest first."""
        with self._lock:
            return tuple(self._rebalances)

    def losses(self) -> tuple[LossStatus, ...]:
        """Return the last losses, oldest first."""
        with self._lock:
            return tuple(self._losses)


def _true(stopped: Callable[[BaseException], bool], error: BaseException) -> bool:
    """Return the answer; False if it is not known, because Spark itself has ended."""
    try:
        return stopped(error)
    except Exception:
        return False


def shown_error(error: BaseException) -> str:
    """Return an error's type. Only the messages of taskplace are shown: those of others may have values of rows."""
    name = type(error).__name__
    return f"{name}: {_message(str(error))}" if isinstance(error, TaskplaceError) else name


def shown_text(text: str) -> str:
    """Return what is shown of an error that an executor reported as "type: message"; as `shown_error`.

    >>> shown_text("DiskFull: /state: no space is left"), shown_text("ValueError: bad row k7")
    ('DiskFull: /state: no space is left', 'ValueError')
    """
    name, _, message = text.partition(": ")
    if name in _ours():
        return f"{name}: {_message(message)}"
    return name if name.isidentifier() else "its copy cannot be read"


def _message(text: str) -> str:
    return " ".join(scrubbed(text).split())[:ERROR_LETTERS]


def _ours() -> set[str]:
    """Return the names of taskplace's errors, as far as their modules are loaded."""
    kinds: list[type] = [TaskplaceError]
    for kind in kinds:  # grows meanwhile
        kinds.extend(kind.__subclasses__())
    return {kind.__name__ for kind in kinds}
