"""Data sources in Python that the driver's own Python plans."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceRegistration

#: The names of the data sources that each session knows.
_registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def register_source(spark: SparkSession, name: str, source: Callable[[], type[DataSource]]) -> None:
    """Make a data source known to a session, once. The driver's own Python plans the source.

    Spark would use the executors' Python for the planning, which may not be installed on the driver.
    """
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
