"""Placed state on Spark. Names are loaded on first use: executors import this package without Spark's driver side."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskplace.spark.kafka.sink import KafkaSink as KafkaSink
    from taskplace.spark.placed import Placed as Placed
    from taskplace.spark.progress import MetricsListener as MetricsListener
    from taskplace.spark.query import PlacedQuery as PlacedQuery
    from taskplace.spark.session_conf import session_properties as session_properties
    from taskplace.spark.sinks import ForeachBatch as ForeachBatch
    from taskplace.spark.sinks import ParquetSink as ParquetSink
    from taskplace.spark.steering.steering import steer as steer
    from taskplace.spark.targets import CommitTarget as CommitTarget
    from taskplace.spark.targets import SinkTarget as SinkTarget

_HOME = {
    "CommitTarget": "targets",
    "ForeachBatch": "sinks",
    "KafkaSink": "kafka.sink",
    "MetricsListener": "progress",
    "ParquetSink": "sinks",
    "Placed": "placed",
    "PlacedQuery": "query",
    "SinkTarget": "targets",
    "session_properties": "session_conf",
    "steer": "steering.steering",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value
