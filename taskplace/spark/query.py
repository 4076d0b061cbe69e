"""The handle of a running placed stream: Spark's `StreamingQuery` with the placement.

Idea: code that waits for, watches or stops a `StreamingQuery` works with this handle unchanged. All members but
`placement`, `placed` and `query` have Spark's names, arguments and results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from taskplace.spark.bridge.queries import jvm_running

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from taskplace.record.events import InstanceView


class Closeable(Protocol):
    """The methods of the placed stream that the handle uses."""

    def close(self) -> None:
        """Stop the replication."""

    def placement(self) -> tuple[InstanceView, ...]:
        """Return what each executor runs and follows."""


PlacedT = TypeVar("PlacedT", bound=Closeable)


class PlacedQuery(Generic[PlacedT]):
    """Has the interface of `pyspark.sql.streaming.StreamingQuery`.

    - `placed`: the stream that the query runs
    - `query`: Spark's own handle
    - `start_again`: starts the query again after its end if work is due by event time, else returns None. Before
      PySpark 4.2, an `availableNow` run ends where it was to end at its start, so this work takes further runs

    `stop` ends the replication as well, and so does `awaitTermination` when the query has ended without an error. After
    an error, call `stop`.

    Errors: those of Spark; the query's own error is raised by `awaitTermination` and `processAllAvailable`.
    `TaskplaceError` from each member if Spark's JVM has ended.

        query = placed.start({"flights": flights})
        while query.isActive and not query.awaitTermination(10):
            print(query.placement())
    """

    def __init__(
        self,
        placed: PlacedT,
        query: StreamingQuery,
        start_again: Callable[[], StreamingQuery | None] | None = None,
    ) -> None:
        self.placed = placed
        self.query = query
        self._start_again = start_again

    def _goes_on(self) -> bool:
        """Return whether the query runs. One that has ended without an error is started again if work is due."""
        if self.query.isActive:
            return True
        if self._start_again is None or self.query.exception() is not None:
            return False
        again = self._start_again()
        self.query = again or self.query
        return again is not None

    @property
    @jvm_running()
    def id(self) -> str:
        """The query's id, the same after a restart."""
        return self.query.id

    @property
    @jvm_running()
    def runId(self) -> str:  # noqa: N802
        """The id of this run."""
        return self.query.runId

    @property
    @jvm_running()
    def name(self) -> str | None:
        """The query's name."""
        return self.query.name

    @property
    @jvm_running()
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query is running."""
        return self._goes_on()

    @property
    @jvm_running()
    def status(self) -> dict[str, Any]:
        """The query's current status, as Spark reports it."""
        return self.query.status

    @property
    @jvm_running()
    def lastProgress(self) -> Any:  # noqa: N802
        """Spark's progress of the last batch."""
        return self.query.lastProgress

    @property
    @jvm_running()
    def recentProgress(self) -> Any:  # noqa: N802
        """Spark's progress of the last batches."""
        return self.query.recentProgress

    @jvm_running()
    def exception(self) -> Exception | None:
        """Return the error that ended the query; None if there was none."""
        return self.query.exception()

    @jvm_running()
    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802
        """Wait until the query ends, at most `timeout` seconds (None: for ever).

        Return whether it has ended; None without a timeout, as Spark does. Errors: the error that ended the query.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while self.query.awaitTermination(timeout) is not False:
            if not self._goes_on():
                self.placed.close()
                return None if timeout is None else True
            if timeout is not None:
                timeout = max(1, math.ceil(deadline - time.monotonic()))
        return False

    @jvm_running()
    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all available input is processed, and nothing is due by event time. For tests, as in Spark.

        A source that always has new rows keeps it waiting. Errors: the error that ended the query.
        """
        self.query.processAllAvailable()

    @jvm_running()
    def stop(self) -> None:
        """Stop the query and the replication. A running batch is cancelled; a restart runs it again."""
        self._start_again = None
        try:
            self.query.stop()
        finally:  # also if Spark's process is gone
            self.placed.close()

    def placement(self) -> tuple[InstanceView, ...]:
        """Return what each executor runs and follows, and the lag of its followers; see `Placed.placement`."""
        return self.placed.placement()
