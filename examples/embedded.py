"""Placed state inside a pipeline of your own: describe the topology, and pass `placed.process_batch` to Spark.

Run it from the repository's root:  .venv/bin/python -m examples.embedded

It writes five small files of orders, some of them delivered twice. The topology keeps what each customer has spent,
and the example prints the totals. The streaming query is Spark's own, with its own trigger, options and checkpoint;
taskplace decides where the state is.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from taskplace.spark import ForeachBatch, Placed, session_properties
from taskplace.spark.processors import Aggregate, Deduplicate, count, sum_
from topology import Topology

CUSTOMERS = ("ada", "ben", "cleo", "dan")


def orders_topology(totals: dict[str, tuple[int, int]]) -> Topology:
    """Return the topology: each order once, then per customer how many and how much."""

    def show(df: DataFrame, batch_id: int) -> None:
        # A batch may be published again after a crash: setting a value twice does no harm.
        totals.update({row["customer"]: (row["orders"], row["cents"]) for row in df.collect()})

    topo = Topology("orders")
    orders = topo.source("orders", key=["customer"], partitions=4)
    seen = Deduplicate("orders-seen", by={"customer": "string", "id": "int64"})
    once = orders.process(seen, stores=[topo.store("orders-seen")])
    spent = Aggregate("spent", by={"customer": "string"}, orders=count(), cents=sum_("cents", "int64"))
    once.process(spent, stores=[topo.store("spent")]).sink("totals", target=ForeachBatch(show))
    return topo


def write_orders(directory: Path, files: int = 5) -> dict[str, tuple[int, int]]:
    """Write the input, and return the correct totals."""
    rng = random.Random(7)
    rows = [
        {"id": i, "customer": rng.choice(CUSTOMERS), "cents": rng.randrange(100, 9900)} for i in range(500)
    ]
    right = {}
    for name in CUSTOMERS:
        cents = [row["cents"] for row in rows if row["customer"] == name]
        right[name] = (len(cents), sum(cents))
    directory.mkdir(parents=True)
    for i in range(files):
        repeated = rng.sample(rows[: 100 * i], 5 * i)  # rows of earlier files
        pq.write_table(
            pa.Table.from_pylist(rows[100 * i : 100 * (i + 1)] + repeated), directory / f"{i}.parquet"
        )
    return right


def main(master: str = "local-cluster[2,2,1024]") -> int:
    """Run it; return 0 if the totals are right."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run this Python, with its packages
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        right = write_orders(root / "orders")
        conf = {
            **session_properties(),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "900m",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        spark = SparkSession.builder.master(master).appName("embedded").config(map=conf).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        totals: dict[str, tuple[int, int]] = {}

        placed = Placed(
            spark,
            orders_topology(totals),
            checkpoint=root / "checkpoint",
            state_dir=root / "state",
            config={"num.standby.replicas": 1, "acceptable.recovery.lag": 0},
        )
        files = spark.readStream.schema("id long, customer string, cents long").option(
            "maxFilesPerTrigger", 1
        )
        df = files.parquet(str(root / "orders"))
        query = (
            df.writeStream.foreachBatch(placed.process_batch)
            .option("checkpointLocation", str(root / "query"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        for view in placed.placement():
            print(f"{view.id}: {view.active} active, {view.standby} standby")
        placed.close()
        spark.stop()

    for customer, (orders, cents) in sorted(totals.items()):
        print(f"{customer}: {orders} orders, {cents / 100:.2f}")
    print("the totals are right" if totals == right else f"wrong: expected {right}")
    return 0 if totals == right else 1


if __name__ == "__main__":
    raise SystemExit(main())
