"""The driver that `tests/spark/kafka` kills with its Spark. Tasks read a topic; a sink writes to another one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

KEYS = "abcdefgh"


def number_rows(key: dict, rows: list[dict], state: dict | None) -> tuple[dict, list[dict]]:
    """Number the rows of a key, over all batches."""
    before = state["n"] if state else 0
    numbered = [{**key, "i": row["i"], "n": before + at + 1} for at, row in enumerate(rows)]
    return {"n": before + len(rows)}, numbered


def main(folder: Path) -> None:
    """Run the stream to the present end of its topic.

    `settings.json` in the folder has servers and topics; with `sink_servers` and `options`, those of the sink.
    """
    from pyspark.sql import SparkSession

    from taskplace.spark import KafkaSink, Placed
    from taskplace.spark.kafka.decoding import Decoder
    from taskplace.spark.kafka.formats import Json, Raw
    from taskplace.spark.kafka.records import KafkaRecords
    from taskplace.spark.kafka.source import stream_of
    from taskplace.spark.processors import PerKey
    from tests.support.placed_harness import SHORT_LIVED
    from topology import Topology

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.executor.memory": "900m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **SHORT_LIVED,
    }
    given = json.loads((folder / "settings.json").read_text())
    decoder = Decoder(key=Raw("k", "string"), value=Json({"i": "int64"}))
    reads = KafkaRecords(given["in"], given["servers"], decoder, most_records=given["most"])
    columns = {"k": "string", "i": "int64", "n": "int64"}
    numbers = PerKey("numbers", number_rows, by={"k": "string"}, state={"n": "int64"}, output=columns)
    servers, options = given.get("sink_servers", given["servers"]), given.get("options")
    target = KafkaSink(given["out"], servers=servers, key="k", marker_topic=given["markers"], options=options)
    topo = Topology("numbers")
    source = topo.source("in", key="k", partitions=given["partitions"], reads=reads)
    source.process(numbers, name="numbered").sink("out", target=target)
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    placed = Placed(spark, topo, checkpoint=folder / "checkpoint", state_dir=folder / "state")
    placed.start({"in": stream_of(reads, placed)}, trigger={"availableNow": True}).awaitTermination()
    placed.close()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
