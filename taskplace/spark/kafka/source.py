"""Decodes the streaming data frame of Spark's own Kafka source.

    records = spark.readStream.format("kafka").option("subscribe", "flights").load()
    flights = decoded(records, Decoder(key=Raw("tailnum", "string"), value=Json({...}), include=["partition"]))

Every record becomes one row, in the order of its partition, so Kafka's `partition` column can be the task's number:
`topo.source("flights", key="tailnum", partitions=12, partition_column="partition")`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from taskplace.spark.kafka.decoding import RECORD, Decoder


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
