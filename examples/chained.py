"""Two subtopologies, chained by a repartition: page views, each counted once, per page.

Run it from the repository's root:  .venv/bin/python -m examples.chained

    views ─ once ═ by-page ═ pages ─> totals
    └ subtopology 0 ┘       └─ subtopology 1 ─┘

Views are keyed by user, and some are delivered twice. A repeat has the same user, so the task that saw the first
delivery gets it and drops it. Counting is by page, so the rows are repartitioned once.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from taskplace.spark import ForeachBatch, Placed
from taskplace.spark.processors import Count, Deduplicate
from topology import Topology

PAGES = ("home", "search", "cart", "help")


def views_topology(totals: dict[str, int]) -> Topology:
    """Return the topology; `totals` gets the views of each page."""

    def show(df: DataFrame, batch_id: int) -> None:
        # A batch may be published again after a crash: setting a value twice does no harm.
        totals.update({row["page"]: row["count"] for row in df.collect()})

    topo = Topology("views")
    views = topo.source("views", key="user", partitions=4)
    once = views.process(Deduplicate("views-seen", by={"user": "string", "id": "int64"}), name="once")
    by_page = once.repartition(key="page", name="by-page", partitions=2)
    pages = by_page.process(Count("views-by-page", by={"page": "string"}), name="pages")
    pages.sink("totals", target=ForeachBatch(show))
    return topo


def write_views(directory: Path, files: int = 3) -> dict[str, int]:
    """Write the input, and return the correct totals."""
    rng = random.Random(11)
    rows = [{"id": i, "user": f"user-{i % 17}", "page": rng.choice(PAGES)} for i in range(100 * files)]
    directory.mkdir(parents=True)
    for i in range(files):
        repeated = rng.sample(rows[: 100 * i], 10 * i)  # rows of earlier files
        part = pa.Table.from_pylist(rows[100 * i : 100 * (i + 1)] + repeated)
        pq.write_table(part, directory / f"{i}.parquet")
    return dict(Counter(row["page"] for row in rows))


def main(master: str = "local[2]") -> int:
    """Run it; return 0 if the totals are right."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run this Python
    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    totals: dict[str, int] = {}
    topology = views_topology(totals)
    print(topology.build().describe())
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        right = write_views(root / "views")
        spark = SparkSession.builder.master(master).appName("chained").config(map=conf).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        placed = Placed(spark, topology, checkpoint=root / "checkpoint", state_dir=root / "state")
        files = spark.readStream.schema("id long, user string, page string").option("maxFilesPerTrigger", 1)
        query = placed.start({"views": files.parquet(str(root / "views"))}, trigger={"availableNow": True})
        query.awaitTermination()
        query.stop()
        spark.stop()
    for page, views in sorted(totals.items()):
        print(f"{page}: {views} views")
    print("the totals are right" if totals == right else f"wrong: expected {right}")
    return 0 if totals == right else 1


if __name__ == "__main__":
    raise SystemExit(main())
