"""Streaming data frames of Kafka's records: decoded ones of Spark's own source, and ranges of `KafkaRecords`.

    records = spark.readStream.format("kafka").option("subscribe", "flights").load()
    flights = decoded(records, Decoder(key=Raw("tailnum", "string"), value=Json({...}), include=["partition"]))

Every record becomes one row, in the order of its partition, so Kafka's `partition` column can be the task's number:
`topo.source("flights", key="tailnum", partitions=12, partition_column="partition")`.

Without a connector, and without a shuffle of records, tasks read the topic themselves (`KafkaRecords`):
`stream_of(flights, placed)` is then the data frame of the ranges that they read.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame

from taskplace.errors import UnsupportedSpark
from taskplace.spark.kafka.alignment import Alignment, alignment
from taskplace.spark.kafka.decoding import RECORD, Decoder
from taskplace.spark.kafka.records import KafkaRecords, going_on, offset_of
from taskplace.spark.messages import SPARK_CHECKPOINT
from taskplace.spark.versions import (
    PLANNED_SOURCES,
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SupportsTriggerAvailableNow,
    from_arrow_schema,
)
from taskplace.spark.worker.topic_reader import RANGES
from topology import BuiltTopology


def decoded(records: DataFrame, decoder: Decoder) -> DataFrame:
    """Return the rows of Kafka's records: `decoder.frame_columns`. Other columns of `records` are not used.

    Errors: `InputError` for a data frame without a column that the decoder needs. A bad record ends the query with an
    `InputError` in Spark's error, if the decoder is to stop there.
    """
    decoder.check(records.columns, "decoded: records")
    used = records.select(*(name for name in RECORD.names if name in records.columns))

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from decoder.frame(pa.Table.from_batches([batch])).combine_chunks().to_batches()

    return used.mapInArrow(decode, from_arrow_schema(decoder.frame_columns))


#: Makes a data source known to a session, by its name.
Register = Callable[[Any, str, Callable[[], type[DataSource]]], None]


def stream_of(records: KafkaRecords, placed: Any) -> DataFrame:
    """Return the streaming data frame of the ranges that tasks of a `Placed` read: for a source with `reads=records`.

    Asks the brokers for the ends of the tables that are read before it. Errors: `InputError`, if they do not answer.
    """
    return ranges_of(
        records,
        placed.bridge.spark,
        placed.bridge.register_source,
        beside(records, placed.built, placed.options.max_task_idle_ms, placed.checkpoint),
    )


def beside(records: KafkaRecords, built: BuiltTopology, idle_ms: int, checkpoint: Path) -> Alignment | None:
    """Return how a topic is planned beside the others of its topology; None: by itself. Errors: as for `stream_of`.

    `checkpoint`: that of the placed stream.
    """
    reads = {
        node.topic or "": node.options["reads"]
        for node in built.nodes
        if node.kind == "source" and isinstance(node.options.get("reads"), KafkaRecords)
    }
    same = [name for name, each in reads.items() if each is records]
    for topic in same or [name for name, each in reads.items() if each.topic == records.topic]:
        return alignment(built, reads, topic, idle_ms=idle_ms, spark_checkpoint=checkpoint / SPARK_CHECKPOINT)
    return None


def ranges_of(records: KafkaRecords, spark: Any, register: Register, aligned: Alignment | None) -> DataFrame:
    """Return the data frame of `stream_of`, before there is a `Placed`. `aligned`: from `beside`.

    `records` is part of the data source's code, and not of its options, which Spark logs.
    Errors: `UnsupportedSpark` before PySpark 4.2, whose data sources in Python do not learn where a batch begins.
    """
    if not PLANNED_SOURCES:
        found, other = f"found PySpark {pyspark.__version__}", "Spark's connector for Kafka and `decoded`"
        raise UnsupportedSpark(
            f"topic {records.topic!r}: tasks read topics from 4.2 on, {found}; read it with {other}"
        )
    name = f"taskplace-kafka-{uuid.uuid4().hex}"
    register(spark, name, partial(_source, name, records, aligned))
    frame: DataFrame = spark.readStream.format(name).load()
    return frame


def _source(name: str, records: KafkaRecords, aligned: Alignment | None = None) -> type[DataSource]:
    """Return a data source of one topic. Its classes are local, so that they are pickled by value."""

    class Ranges(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> Any:
            return from_arrow_schema(RANGES)

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return Reader()

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self) -> None:
            self._last: Any = None
            self._planned: Any = None
            self._ends: Mapping[int, int] = {}

        def initialOffset(self) -> Any:  # noqa: N802
            return records.first()

        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
            begin = records.resumed(start)
            own, last = records.available(begin, self._last), self._last is not None
            ends = own.capped if aligned is None else aligned.ends(start, own, last=last)
            end = offset_of(begin["topic_id"], ends)
            self._planned, self._ends = end if begin is start else going_on(end, begin), own.ends
            return self._planned

        def reportLatestOffset(self) -> Any:  # noqa: N802
            return records.seen  # in the progress of the batch that `latestOffset` has planned

        def partitions(self, start: Any, end: Any) -> list[InputPartition]:
            ends = self._ends
            if end != self._planned:  # a batch that Spark repeats
                end, ends = records.left(start, end), records.extent({}).ends
            ranges = list(records.ranges(start, end, ends))
            return [InputPartition(ranges)] if ranges else []

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return iter(partition.value)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._last = records.last()

    return Ranges
