"""Starts streaming queries with SQL configuration of their own."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from taskplace.spark.session_conf import query_properties
from taskplace.spark.temporary_conf import temporary_conf

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

#: How long a start waits for the query's sources. A query that takes longer has them anyway, with the session's values.
SOURCES_MS = 10_000
#: Two starts at once would each restore what the other has set.
_starting = threading.Lock()


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
