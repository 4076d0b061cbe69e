"""What a stream leaves behind: files, handles, threads and references, after so many batches of a real session.

    python benchmarks/bench_leftovers.py --batches 200 --pad-kib 1536
    python benchmarks/bench_leftovers.py --batches 1000 --every 100 --log leftovers.jsonl

A program of that size runs on `local[2]`: two subtopologies, a store in each, a read now and then. What is there after
the first batches is compared with what is there after the last; nothing should grow with the number of batches. With
`--every`, also on the way: a line of JSON each, so that a run that is stopped has something to show.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

FIRST = 10


class Padded:
    """A processor that passes rows on, and is large."""

    def __init__(self, kib: int) -> None:
        self.pad = os.urandom(kib << 10)

    def process(self, context: Any, rows: Any) -> Any:
        return rows


def files(folder: str | Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def measure(spark: Any, checkpoint: Path) -> dict[str, int]:
    from py4j.finalizer import ThreadSafeFinalizer

    sc = spark.sparkContext
    for _ in range(2):
        gc.collect()
        sc._jvm.System.gc()
        time.sleep(1)
    me, java = psutil.Process(), psutil.Process(sc._gateway.proc.pid)
    while "java" not in java.name():  # a script may have started it
        java = java.children()[0]
    below = java.children(recursive=True)
    temporary = Path(sc._temp_dir)
    return {
        "files in the driver's temporary directory": files(temporary),
        "MiB there": sum(f.stat().st_size for f in temporary.rglob("*") if f.is_file()) >> 20,
        "files of the block manager": files(sc.getConf().get("spark.local.dir")) - files(temporary),
        "files in the checkpoint": files(checkpoint),
        "handles of Python": me.num_fds(),
        "handles of Java": java.num_fds(),
        "threads of Python": me.num_threads(),
        "threads of Java": java.num_threads(),
        "Python workers": len(below),
        "handles of Python workers": sum(p.num_fds() for p in below if p.is_running()),
        "Java objects held by Python": len(ThreadSafeFinalizer.finalizers),
        "Python objects": len(gc.get_objects()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--pad-kib", type=int, default=1536)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("leftovers.jsonl"), help="of --every")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from taskplace.spark import Placed
    from taskplace.spark.processors import Aggregate, Count, count
    from topology import Topology

    with tempfile.TemporaryDirectory() as folder:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", f"{folder}/local")
            .config("spark.scheduler.mode", "FAIR")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("FATAL")
        topology = Topology("leftovers")
        rows = topology.source("rows", key=["k"], partitions=2)
        counted = rows.process(Padded(options.pad_kib)).process(Count("by-k", by={"k": "long"}))
        counted.repartition(key=["count"], partitions=2, name="by-count").process(
            Aggregate("by-count", by={"count": "long"}, over_changes=True, n=count())
        )
        placed = Placed(spark, topology, checkpoint=f"{folder}/checkpoint", state_dir=f"{folder}/state")
        found = []
        stop = FIRST + options.batches
        for batch in range(stop + 1):
            on_the_way = options.every and batch > FIRST and (batch - FIRST) % options.every == 0
            if batch in (FIRST, stop) or on_the_way:
                found.append(measure(spark, placed.checkpoint))
                if options.every:
                    with options.log.open("a") as log:
                        log.write(json.dumps({"batch": batch, **found[-1]}) + "\n")
            df = spark.range(batch, batch + 20).selectExpr("id % 13 as k")
            placed.process_batch(placed.unite({"rows": df}), batch)
            if batch % 10 == 0:
                placed.store("by-k").get({"k": 1})
        placed.close()
        closed = measure(spark, placed.checkpoint)
        spark.stop()
    if options.json:
        print(json.dumps({"first": found[0], "last": found[-1], "closed": closed}))
        return
    print(f"{'':44} {'after ' + str(FIRST):>10} {'after ' + str(stop):>10} {'closed':>10}")
    for name, first in found[0].items():
        print(f"{name:44} {first:10} {found[-1][name]:10} {closed[name]:10}")


if __name__ == "__main__":
    main()
