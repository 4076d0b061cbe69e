"""Puts a stream's metrics beside Spark's progress: a listener for `spark.streams.addListener`.

Spark reports each batch of a query as a `StreamingQueryProgress`: rows, durations, sources. It knows nothing of the
placement. This listener gets Spark's events, and passes each one of its own query on with `Placed.metrics`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from taskplace.logs import RepeatedWarnings
from taskplace.model.callables import check_function

log = logging.getLogger(__name__)

#: Gets Spark's progress of a batch, and the metrics at that time.
OnProgress = Callable[[StreamingQueryProgress, Mapping[str, Any]], object]


class Measured(Protocol):
    """What the listener reads of a placed stream."""

    @property
    def query_id(self) -> str | None:
        """The id of Spark's query; None before the first batch."""

    def metrics(self) -> dict[str, Any]:
        """Return the metrics by name."""


class MetricsListener(StreamingQueryListener):
    """Calls a function with each `StreamingQueryProgress` of a placed stream's query, and with its metrics.

    - `placed`: the stream; events of other queries are ignored
    - `on_progress`: called with the progress and `placed.metrics()`

    Spark calls its listeners in a thread of their own, after the batch, so the metrics may be newer than the progress:
    compare `batches-total` with the progress' `batchId`. The function delays other listeners, but no batch. An error of
    the function is logged, at growing intervals if it repeats, and the stream goes on.
    Errors: `InputError` for a function that does not take these two arguments.

        def show(progress, metrics):
            print(progress.batchId, progress.numInputRows, metrics["active-restoring-tasks"])

        spark.streams.addListener(MetricsListener(placed, show))
    """

    def __init__(self, placed: Measured, on_progress: OnProgress) -> None:
        check_function(on_progress, "MetricsListener.on_progress", arguments=["progress", "metrics"])
        self._placed, self._on_progress = placed, on_progress
        self._repeated = RepeatedWarnings()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Pass a progress of the stream's own query on."""
        if str(event.progress.id) != self._placed.query_id:
            return
        try:
            self._on_progress(event.progress, self._placed.metrics())
        except Exception as error:
            said, batch = "the listener of batch %d failed", event.progress.batchId
            self._repeated.warn(log, said, batch, kind=type(error), exc_info=True)
        else:
            self._repeated.settle(log, "the listener works again")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing."""
