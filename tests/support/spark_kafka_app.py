"""A stream of Spark's own Kafka source, in a process of its own: it ends when it has read what is there.

`python -m tests.support.spark_kafka_app SERVERS TOPIC PARTITIONS FOLDER JARS`. Prints, as JSON, the count by key.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from taskplace.spark import ParquetSink
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Json, Raw
from taskplace.spark.kafka.source import decoded
from taskplace.spark.placed import Placed
from taskplace.spark.processors import Count
from topology import Topology

KEYS = [f"N{number}" for number in range(20)]
DECODER = Decoder(
    key=Raw("tailnum", "string"),
    value=Json({"number": "int64"}),
    include=["key", "partition", "offset", "headers"],
)


class Task:
    """Adds the task's partition to each row."""

    def process(self, context, rows):
        return rows.append_column("task", pa.array([context.partition] * len(rows), pa.int32()))


def main(servers: str, topic: str, partitions: str, folder: str, jars: str) -> None:
    session = SparkSession.builder.master("local[2]").appName("spark-kafka")
    for name, value in {
        "spark.jars": jars,
        "spark.driver.memory": "700m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.mode": "FAIR",
    }.items():
        session = session.config(name, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source = {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "60",
    }
    topo = Topology("flights")
    rows = topo.source(
        "flights", key="tailnum", partitions=int(partitions), partition_column="partition", key_bytes="key"
    )
    rows.process(Count("flown", by={"tailnum": "string"}), name="count")
    rows.process(Task(), name="task").sink("out", target=ParquetSink(Path(folder, "out")))
    placed = Placed(spark, topo, checkpoint=Path(folder, "checkpoint"), state_dir=Path(folder, "state"))
    frame = decoded(spark.readStream.format("kafka").options(**source).load(), DECODER)
    placed.start({"flights": frame}, trigger={"availableNow": True}).awaitTermination()
    found = placed.store("flown").get_many(pa.table({"tailnum": KEYS}))["value"].to_pylist()
    placed.close()
    print(json.dumps({key: value["count"] for key, value in zip(KEYS, found, strict=True)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
