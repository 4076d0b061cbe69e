"""Starts streaming queries with SQL configuration of their own, and says in one line that their JVM has ended."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from taskplace.errors import TaskplaceError
from taskplace.spark.bridge.queries import temporary_conf
from taskplace.spark.session_conf import query_properties

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

#: How long a start waits for the query's sources. A query that takes longer has them anyway, with the session's values.
SOURCES_MS = 10_000
#: Two starts at once would each restore what the other has set.
_starting = threading.Lock()


#: What a call into the JVM raises when the JVM has ended.
JVM_ENDED = (Py4JNetworkError, ConnectionError)


@contextlib.contextmanager
def jvm_running() -> Iterator[None]:
    """Raise a `TaskplaceError` of one line if the JVM has ended. Also a decorator."""
    try:
        yield
    except (Py4JError, ConnectionError):
        if _jvm_answers():
            raise
        raise TaskplaceError(
            "Spark's JVM of this driver has ended: it was killed, or has failed (see its log, and the host's for "
            "the out-of-memory killer); start again, and the stream goes on after its last committed batch"
        ) from None


def _jvm_answers() -> bool:
    try:
        return SparkContext._gateway is None or bool(SparkContext._gateway.jvm.System.nanoTime())
    except JVM_ENDED:
        return False


def start_query(writer: DataStreamWriter, spark: SparkSession) -> StreamingQuery:
    """Start a query with `query_properties`, where its session leaves them open; the session keeps its own values.

    Spark copies the session's configuration for the query when it starts. But file sources read that of the session
    itself, when the query's thread makes them. So this returns when the query has its sources, or has failed.
    Errors: those of `DataStreamWriter.start`.
    """
    with _starting:
        wanted = {p.name: p.value for p in query_properties() if spark.conf.get(p.name, None) is None}
        with temporary_conf(spark, wanted):
            query = writer.start()
            with contextlib.suppress(Py4JError):  # the query's own error, which `awaitTermination` raises
                query._jsq.streamingQuery().awaitInitialization(SOURCES_MS)
    return query
