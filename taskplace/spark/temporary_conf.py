"""SQL configuration of a session that holds for a block only."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from taskplace.spark.session_conf import query_properties

#: Two starts at once would each restore what the other has set.
_STARTING = threading.Lock()


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


@contextmanager
def conf_of_a_placed_query(spark: SparkSession) -> Iterator[None]:
    """Set the properties of a placed query that the session leaves open, while the query starts.

    A query takes a copy of the session's configuration when it starts. So other queries keep theirs, and what the user
    has set stays in force.
    """
    with _STARTING:
        wanted = {name: value for name, value in query_properties() if spark.conf.get(name, None) is None}
        with temporary_conf(spark, wanted):
            yield
