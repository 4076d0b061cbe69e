"""A case as a query of plain Spark, for what both can compute: chains of window aggregates, and de-duplication.

Each batch and source is one Parquet file (`maxFilesPerTrigger`), and `foreachBatch` collects the rows.
`generate.spark_case` leaves out what Spark computes differently: grace, times before 1970 or finer than milliseconds,
and rows of a de-duplication that are late by the watermark but not by the time to live.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.differential import build
from tests.differential.case import WINDOW_START, Case, Node, Row

_WINDOW = "__window"


def sources(spark: SparkSession, case: Case, folder: Path) -> dict[str, DataFrame]:
    """Return the sources of a case as streams of files, one file per batch."""
    streams: dict[str, DataFrame] = {}
    for name, source in case.sources.items():
        (folder / name).mkdir(parents=True)
        for number, batch in enumerate(case.batches):
            file = folder / name / f"{number:05d}.parquet"
            pq.write_table(build.table(source.columns, batch.get(name, [])), file)
            os.utime(file, (1_000_000 + number, 1_000_000 + number))  # Spark sorts files by time
        reader = spark.readStream.schema(spark.read.parquet(str(folder / name)).schema)
        streams[name] = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / name))
    return streams


def placed(spark: SparkSession, case: Case, folder: Path) -> dict[str, dict[int, list[Row]]]:
    """Run a case with taskplace on Spark. Return the rows of each sink by batch."""
    from taskplace.spark import Placed

    directories = {"checkpoint": folder / "checkpoint", "state_dir": folder / "state"}
    run = Placed(spark, build.topology(case, folder), **directories)
    try:
        run.start(sources(spark, case, folder / "in"), trigger={"availableNow": True}).awaitTermination()
    finally:
        run.close()

    def rows(sink: str, number: int) -> list[Row]:
        files = (folder / "sinks" / sink / f"batch_id={number}").glob("*.parquet")
        return [row for file in files for row in build.plain(pq.ParquetFile(file).read())]

    return {sink: {n: rows(sink, n) for n in range(len(case.batches))} for sink in case.sinks}


def run(spark: SparkSession, case: Case, folder: Path) -> dict[int, list[Row]]:
    """Return the rows of a case's only sink, by batch. Spark's own batches without rows follow the last one."""
    streams = sources(spark, case, folder / "in")
    for name, source in case.sources.items():
        if source.event_time:
            delay = f"{source.delay // 1000} milliseconds"
            streams[name] = streams[name].withWatermark(source.event_time, delay)
    for node in case.nodes:
        streams[node.name] = _step(node, [streams[name] for name in node.inputs])
    (sink,) = case.sinks
    final = streams[sink].drop(_WINDOW)
    windows = [node.options.get("window") or {} for node in case.nodes if node.op == "aggregate"]
    changes = any(window.get("emit") != "final" for window in windows)
    found: dict[int, list[Row]] = {}

    def keep(df: DataFrame, number: int) -> None:
        found[number] = build.plain(df.toArrow())

    writer = final.writeStream.outputMode("update" if changes else "append").foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    return found


def _step(node: Node, inputs: list[DataFrame]) -> DataFrame:
    df, options = inputs[0], node.options
    if node.op == "repartition":
        return df
    if node.op == "merge":
        for other in inputs[1:]:
            df = df.unionByName(other)
        return df
    if node.op == "deduplicate":
        drop = df.dropDuplicatesWithinWatermark if options.get("ttl") else df.dropDuplicates
        return drop(options["by"])
    window = options.get("window")
    columns: list[Any] = [F.col(c) for c in options["by"]]
    if window:
        column = _WINDOW if window["column"] == "window_time" else window["column"]
        columns.append(F.window(column, f"{window['size'] // 1000} milliseconds").alias(_WINDOW))
    df = df.groupBy(*columns).agg(*(_aggregated(*a).alias(name) for name, a in options["aggregates"].items()))
    if window:
        df = df.withColumn(WINDOW_START, F.col(f"{_WINDOW}.start"))
        if window.get("time"):
            df = df.withColumn(window["time"], F.window_time(F.col(_WINDOW)))
    return df


def _aggregated(function: str, column: str | None, _: str) -> Any:
    if function == "count":
        return F.count(F.lit(1) if column is None else F.col(column))
    if function in ("first", "last"):
        return getattr(F, function)(column, ignorenulls=True)
    return getattr(F, function)(column)
