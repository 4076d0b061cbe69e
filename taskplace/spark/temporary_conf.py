"""SQL configuration of a session that holds for a block only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


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
