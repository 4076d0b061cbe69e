"""The driver that `test_driver_killed` kills. It streams files through the harness, on its own cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def stream(spark, folder: Path):
    """Run the pipeline over all files of `folder`, one per batch, and return it."""
    from tests.support.placed_harness import Pipeline

    pipeline = Pipeline(spark, folder)
    reader = spark.readStream.schema("key string, `group` string, value bigint")
    files = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    pipeline.placed.start({"events": files}, trigger={"availableNow": True}).awaitTermination()
    return pipeline


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    from tests.support.placed_harness import SHORT_LIVED

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.executor.memory": "900m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **SHORT_LIVED,
    }
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    pipeline = stream(spark, folder)
    print("scratch", pipeline.placed.stats.scratch, "batches", pipeline.placed.stats.batches, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
