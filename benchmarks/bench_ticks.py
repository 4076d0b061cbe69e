"""What the source of ticks costs each batch: one stream with it and one without, in turns, in one session.

    python benchmarks/bench_ticks.py [--quick] [--batches 30] [--json FILE]

Both streams run the same topology over the same files, one file a batch: a count by key with a `ttl`, so that there is
something to do by time. The event time of all rows is the same, so that no tick has a batch run: what is measured is
that Spark asks one source more, which is an idle Python process, and plans one branch more.

Last, what it costs to unite one source, as `foreachBatch(placed.process_batch)` does in every batch, with few and with
many columns: judging the schema, and all of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from spark_bench import PARTITIONS, Out, Stream, arguments, cluster, write_files

SCHEMA = "key string, at timestamp"
ROWS, KEYS = 20_000, 1_000


def topology() -> Any:
    from taskplace.spark.processors import Count
    from topology import Topology

    topo = Topology("ticks")
    events = topo.source("events", key=["key"], partitions=PARTITIONS, event_time="at")
    seen = Count("by-key", by={"key": "string", "at": "timestamp"}, ttl="1 day", time="at")
    events.process(seen)
    return topo


def start(spark: Any, ticks: bool) -> Callable[[Any, Path], Any]:
    def started(frame: Any, folder: Path) -> Any:
        from taskplace.spark import Placed

        placed = Placed(spark, topology(), checkpoint=folder / "checkpoint", state_dir=folder / "state")
        united = placed.unite({"events": frame}, ticks=ticks)
        query = united.writeStream.foreachBatch(placed.process_batch)
        query = query.option("checkpointLocation", str(folder / "query")).start()
        return query, folder / "query", placed

    return started


def unite_costs(spark: Any, out: Out, columns: int, times: int) -> dict[str, float]:
    """Return the median milliseconds of judging a source's schema, and of uniting it."""
    from taskplace.spark.compile.programs import unite
    from taskplace.spark.compile.sources import check_sources

    built = topology().build()
    more = ", ".join(f"cast(null as long) as c{i}" for i in range(columns - 2))
    text = f"select '' as key, current_timestamp() as at{', ' + more if more else ''}"
    judged, whole = [], []
    for _ in range(times):
        frame = spark.sql(text)
        schemas = {"events": frame.schema}
        begin = time.perf_counter()
        check_sources(built, schemas)
        judged.append(1000 * (time.perf_counter() - begin))
        frame = spark.sql(text)
        begin = time.perf_counter()
        unite(built, {"events": frame})
        whole.append(1000 * (time.perf_counter() - begin))
    found = {"judging, ms": statistics.median(judged), "uniting, ms": statistics.median(whole)}
    out.note(f"{columns} columns: " + ", ".join(f"{name} {value:.1f}" for name, value in found.items()))
    return found


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=30)
    args = parser.parse_args()
    batches = 3 if args.quick else args.batches
    out = Out(args, "what ticks cost a batch")
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    table = pa.table(
        {
            "key": [f"key-{i % KEYS}" for i in range(ROWS)],
            "at": pa.array([at] * ROWS, pa.timestamp("us", tz="UTC")),
        }
    )
    with cluster("ticks", args.scratch) as (spark, folder):
        (file,) = write_files(folder / "data", "rows", [table])
        streams = {
            name: Stream(spark, name, folder / name.replace(" ", "-"), SCHEMA, start(spark, ticks))
            for name, ticks in (("with ticks", True), ("without ticks", False))
        }
        for stream in streams.values():
            for _ in range(3):  # which do not count
                stream.run(file)
        for number in range(batches):
            turn = list(streams.values())
            for stream in turn if number % 2 else reversed(turn):
                stream.run(file)
        rows = []
        for name, stream in streams.items():
            counted = range(3, stream.fed)
            seconds = [stream.seconds(batch) for batch in counted]
            spans = stream.spans(counted)
            out.keep(name, {"seconds": seconds, "spans": spans})
            rows.append(
                [
                    name,
                    str(len(seconds)),
                    f"{statistics.median(seconds):.3f} s ({min(seconds):.2f}-{max(seconds):.2f})",
                    *(f"{spans.get(span, 0):.3f}" for span in ("latestOffset", "queryPlanning", "addBatch")),
                ]
            )
            out.note(f"{name}: {len(seconds)} batches")
        out.table(["stream", "batches", "a batch", "latestOffset", "queryPlanning", "addBatch"], rows)
        for stream in streams.values():
            stream.stop()
        times = 3 if args.quick else 20
        out.keep("unite", {n: unite_costs(spark, out, n, times) for n in (3, 500)})
    out.close()


if __name__ == "__main__":
    main()
