"""The handle of a running placed stream: Spark's `StreamingQuery` with the placement.

Idea: code that waits for, watches or stops a `StreamingQuery` works with this handle unchanged. All members but
`placement`, `placed` and `query` have Spark's names, arguments and results.
"""

from __future__ import annotations

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

    `stop` ends the replication as well, and so does `awaitTermination` when the query has ended without an error. After
    an error, call `stop`.

    Errors: those of Spark; the query's own error is raised by `awaitTermination` and `processAllAvailable`.
    `TaskplaceError` from each member if Spark's JVM has ended.

        query = placed.start({"flights": flights})
        while query.isActive and not query.awaitTermination(10):
            print(query.placement())
    """

    def __init__(self, placed: PlacedT, query: StreamingQuery) -> None:
        self.placed = placed
        self.query = query

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
        return self.query.isActive

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
        ended = self.query.awaitTermination(timeout)
        if not self.query.isActive:
            self.placed.close()
        return ended

    @jvm_running()
    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all available input is processed, and nothing is due by event time. For tests, as in Spark.

        A source that always has new rows keeps it waiting. Errors: the error that ended the query.
        """
        self.query.processAllAvailable()

    @jvm_running()
    def stop(self) -> None:
        """Stop the query and the replication. A running batch is cancelled; a restart runs it again."""
        try:
            self.query.stop()
        finally:  # also if Spark's process is gone
            self.placed.close()

    def placement(self) -> tuple[InstanceView, ...]:
        """Return what each executor runs and follows, and the lag of its followers; see `Placed.placement`."""
        return self.placed.placement()
