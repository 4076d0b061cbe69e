"""Queries and sessions: starts streaming queries with SQL configuration of their own, registers data sources that the
driver's own Python plans, and says in one line that the JVM has ended.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from taskplace.errors import TaskplaceError
from taskplace.spark.session_conf import query_properties
from taskplace.spark.versions import DataSource

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


#: How long a start waits for the query's sources. A query that takes longer has them anyway, with the session's values.
SOURCES_MS = 10_000
#: What a call into the JVM raises when the JVM has ended.
JVM_ENDED = (Py4JNetworkError, ConnectionError)
#: Two starts at once would each restore what the other has set.
_starting = threading.Lock()
#: The names of the data sources that each session knows.
_registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


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


@contextmanager
def temporary_conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set SQL configuration for a block, and restore the previous values after it."""
    before: dict[str, str | None] = {}
    try:
        for key, value in values.items():
            before[key] = spark.conf.get(key, None)
            spark.conf.set(key, value)
        yield
    finally:
        for key, former in before.items():
            if former is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, former)


def register_source(spark: SparkSession, name: str, source: Callable[[], type[DataSource]]) -> None:
    """Make a data source known to a session, once. The driver's own Python plans the source.

    Spark would use the executors' Python for the planning, which may not be installed on the driver.
    """
    from pyspark.sql.datasource import DataSourceRegistration

    if name in _registered.setdefault(spark, set()):
        return
    here: Any = SimpleNamespace(
        sparkContext=_OfDriver(spark.sparkContext), _jsparkSession=spark._jsparkSession
    )
    DataSourceRegistration(here).register(source())
    _registered[spark].add(name)


class _OfDriver:
    """A stand-in for a Spark context that names this process's Python."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.pythonExec = sys.executable or context.pythonExec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


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
