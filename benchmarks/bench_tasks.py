"""What a placed task costs a batch: batches with 12, 200 and 1,000 tasks, and the floor that Spark sets, in one run.

    python benchmarks/bench_tasks.py [--quick] [--json FILE] [--parts floor,batches] [--tasks 12,200,1000]

- floor: the rows of a batch through a shuffle onto as many partitions as there are tasks, read by pinned Python tasks
  that do nothing: one Spark task per partition, and one per bin. "map side" is the part before the first Python task.
- batches: `Aggregate` without sink and without standbys. Beside it Spark's own aggregation with RocksDB, with 12 and
  with 200 shuffle partitions (the number of partitions of a native query is fixed by its checkpoint).

Variants take turns, in another order each round, after batches that do not count; medians. Each result is checked.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench_throughput import NATIVE, SCHEMA, Size, native, turns
from spark_bench import EXECUTORS, Out, arguments, cluster, start_placed

BINS = (3, 6, 12)


def topology(partitions: int) -> Any:
    from taskplace.spark.processors import Aggregate, count, sum_
    from topology import Topology

    topo = Topology("tasks")
    events = topo.source("events", key=["key"], partitions=partitions)
    by_key = Aggregate("by-key", by={"key": "string"}, n=count(), total=sum_("value", "int64"))
    events.process(by_key, stores=[topo.store("by-key")])
    return topo


def placed(partitions: int, spark: Any) -> Callable[[Any, Path], Any]:
    return lambda frame, folder: start_placed(spark, frame, folder, topology(partitions), 0)


def with_partitions(partitions: int, spark: Any) -> Callable[[Any, Path], Any]:
    """Return a native query whose state has so many partitions; its checkpoint keeps the number."""

    def start(frame: Any, folder: Path) -> Any:
        before = spark.conf.get("spark.sql.shuffle.partitions")
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        try:
            return native(frame, folder)
        finally:  # the query has its own copy of the configuration
            spark.conf.set("spark.sql.shuffle.partitions", before)

    return start


# -- the floor


def nothing(elements: Iterable[Any]) -> Iterator[int]:
    """Read the rows and do nothing with them."""
    for _, batches in elements:
        yield sum(map(len, batches))


def floor(spark: Any, out: Out, size: Size, tasks: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way to bring one batch's rows to pinned tasks; each round shuffles anew."""
    from pyspark.sql import functions as F  # noqa: N812

    from taskplace.spark.bridge import Bridge

    bridge = Bridge(spark)
    executors = bridge.executors()
    seconds: dict[str, list[float]] = {}
    ways = [tasks, *(bins for bins in BINS if bins < tasks)]
    for number in range(rounds + 1):
        for bins in ways[number % len(ways) :] + ways[: number % len(ways)]:
            frame = spark.read.schema(SCHEMA).parquet(str(size.files[number % len(size.files)]))
            rows = frame.withColumn("p", F.expr(f"pmod(hash(key), {tasks})"))
            start = time.perf_counter()
            arrow = bridge.arrow_input(rows, range(tasks), "p")
            mapped = time.perf_counter()
            edges = [tasks * i // bins for i in range(bins + 1)]
            ranges = list(pairwise(edges))
            locations = [executors[i * EXECUTORS // bins].location for i in range(bins)]
            job = bridge.pinned([b""] * bins, locations, nothing, arrow, ranges)
            if sum(bridge.run(job, range(bins), tag="floor")) == 0:
                raise RuntimeError("the tasks read nothing")
            if number:  # the first round warms up
                seconds.setdefault(f"{bins} Spark tasks", []).append(time.perf_counter() - start)
                seconds.setdefault("map side", []).append(mapped - start)
    return seconds


def show_floor(out: Out, found: dict[int, dict[str, list[float]]]) -> None:
    out.say("\nThe floor: a batch's rows to pinned Python tasks that do nothing (medians; the range of all)")
    rows = [
        [
            f"{tasks} partitions",
            name,
            f"{statistics.median(some):.2f} s",
            f"({min(some):.2f}-{max(some):.2f})",
        ]
        for tasks, ways in found.items()
        for name, some in ways.items()
    ]
    out.table(["shuffle", "read by", "seconds", ""], rows)


# -- batches


def show_batches(out: Out, size: Size, found: dict[str, Any], least: str) -> None:
    out.say(f"\n{size.rows:,} rows onto {size.keys:,} keys a batch (medians; the range of all in brackets)")
    head = ["variant", "batch", "", f"/ {least}", "/ native, 12", "empty batch"]
    rows = []
    for name, f in found.items():
        some = f["all"]["data"]
        rows.append(
            [
                name,
                f"{f['seconds']:.2f} s",
                f"({min(some):.2f}-{max(some):.2f})",
                f"{f['seconds'] / found[least]['seconds']:.2f}",
                f"{f['seconds'] / found[NATIVE]['seconds']:.2f}" if NATIVE in found else "",
                f"{f['empty_seconds']:.2f} s",
            ]
        )
    out.table(head, rows)
    for name, f in found.items():
        for kind in ("data", "empty"):
            out.phases(f"{name}, {kind} batch, as Spark sees it", f["spans"][kind])
            if f["phases"][kind]:
                out.phases(f"{name}, {kind} batch, as taskplace sees it", f["phases"][kind])


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--parts", default="floor,batches", help="what to measure (%(default)s)")
    parser.add_argument("--tasks", default="12,200,1000", help="numbers of tasks (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of measured batches (%(default)s)")
    parser.add_argument("--often", type=int, default=2, help="batches a round (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    parts, tasks = args.parts.split(","), [int(number) for number in args.tasks.split(",")]
    if not parts or set(parts) - {"floor", "batches"}:
        parser.error(f"--parts: found {args.parts!r}, expected some of floor, batches")
    out = Out(args, "bench-tasks")
    rounds = 1 if args.quick else args.rounds
    with cluster("bench-tasks", args.scratch) as (spark, folder):
        out.note("cluster is up")
        size = Size(folder, *((1_200, 120) if args.quick else (200_000, 10_000)), args.seed)
        if "floor" in parts:
            floors = {}
            for number in tasks:
                floors[number] = floor(spark, out, size, number, rounds)
                out.note(f"floor, {number} partitions")
            out.keep("floor", floors)
            show_floor(out, floors)
        if "batches" in parts:
            variants = {f"placed, {number} tasks": placed(number, spark) for number in tasks}
            variants |= {
                NATIVE: native,
                "native agg, 200 partitions": with_partitions(200, spark),
            }
            often = {} if args.quick else dict.fromkeys(variants, args.often)
            found = turns(spark, out, folder / "batches", size, variants, rounds=rounds, often=often)
            out.keep("batches", found)
            show_batches(out, size, found, f"placed, {tasks[0]} tasks")
    out.close()


if __name__ == "__main__":
    main()
