"""How many rows a second, and what a batch without rows costs: placed state beside Spark's own ways, in one run.

    make bench-throughput           # or: python benchmarks/bench_throughput.py [--quick] [--json FILE]

All variants keep a count and a sum by key, in 12 partitions, and send on the new values of the keys that a batch
touched. Every data file has each key equally often, in random order; a file is a batch.

- placed: `Aggregate`, without standbys; into a `ParquetSink`, and without a sink
- native: `groupBy().agg()`, RocksDB, changelog checkpointing; into the noop sink, and into Parquet by `foreachBatch`.
  "Logs as placed": with the properties of Spark that `Placed.start` sets for its own query
- transformWithStateInPandas, applyInPandasWithState: one value per key, into the noop sink

First what a standby costs the batches, back to back and with idle time between them; then two sizes, the smaller one
also with the Python APIs. Variants take turns, in another order each round, after batches that do not count; the
Python APIs take one batch a round, the others three; medians. Last, a single batch of the larger size for the Python
APIs, which takes them minutes. Each variant's result is checked at the end: a wrong one ends the run with an error.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from spark_bench import (
    PARTITIONS,
    Out,
    Stream,
    arguments,
    cluster,
    in_turn,
    start_native,
    start_placed,
    write_files,
)

SCHEMA = "key string, value bigint"
RESULT = "key string, n bigint, total bigint"

PLACED, PLACED_BARE = "placed, Parquet", "placed, no sink"
NATIVE, NATIVE_PARQUET = "native agg, noop", "native agg, Parquet"
NATIVE_LOGS = "native agg, noop, logs as placed"
TWS, APIWS = "transformWithStateInPandas, noop", "applyInPandasWithState, noop"


# -- the variants


def topology(sink: Path | None) -> Any:
    from taskplace.spark import ParquetSink
    from taskplace.spark.processors import Aggregate, count, sum_
    from topology import Topology

    topo = Topology("throughput")
    events = topo.source("events", key=["key"], partitions=PARTITIONS)
    by_key = Aggregate("by-key", by={"key": "string"}, n=count(), total=sum_("value", "int64"))
    counted = events.process(by_key, stores=[topo.store("by-key")])
    if sink is not None:
        counted.sink("out", target=ParquetSink(sink))
    return topo


def placed(spark: Any, standbys: int = 0, sink: bool = True) -> Callable[[Any, Path], Any]:
    return lambda frame, folder: start_placed(
        spark, frame, folder, topology(folder / "out" if sink else None), standbys
    )


def aggregated(frame: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    return frame.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def observed(frame: Any) -> Any:
    """Add up what is sent on, for the check: what a sink that keeps nothing was given."""
    from pyspark.sql import functions as F  # noqa: N812

    return frame.observe("sent", F.count("*").alias("keys"), F.sum("n").alias("n"))


def native(frame: Any, folder: Path) -> Any:
    return start_native(observed(aggregated(frame)).writeStream.format("noop"), folder)


def native_with_logs_as_placed(frame: Any, folder: Path) -> Any:
    from taskplace.spark.bridge import start_query

    writer = observed(aggregated(frame)).writeStream.format("noop")
    return start_native(writer, folder, lambda writer: start_query(writer, frame.sparkSession))


def native_parquet(frame: Any, folder: Path) -> Any:
    def write(df: Any, batch: int) -> None:
        df.write.mode("overwrite").parquet(str(folder / "out" / f"batch_id={batch}"))

    return start_native(aggregated(frame).writeStream.foreachBatch(write), folder)


def transform_with_state(frame: Any, folder: Path) -> Any:
    from pyspark.sql.streaming import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.known = handle.getValueState("known", "n bigint, total bigint")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timer: Any) -> Iterable[Any]:  # noqa: N802
            n, total = self.known.get() if self.known.exists() else (0, 0)
            for part in rows:
                n, total = n + len(part), total + int(part["value"].sum())
            self.known.update((n, total))
            yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

        def close(self) -> None:
            pass

    result = frame.groupBy("key").transformWithStateInPandas(
        statefulProcessor=Totals(), outputStructType=RESULT, outputMode="Update", timeMode="None"
    )
    return start_native(observed(result).writeStream.format("noop"), folder)


def apply_in_pandas_with_state(frame: Any, folder: Path) -> Any:
    from pyspark.sql.streaming.state import GroupStateTimeout

    def totals(key: Any, rows: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        n, total = state.get if state.exists else (0, 0)
        for part in rows:
            n, total = n + len(part), total + int(part["value"].sum())
        state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    result = frame.groupBy("key").applyInPandasWithState(
        totals, RESULT, "n bigint, total bigint", "update", GroupStateTimeout.NoTimeout
    )
    return start_native(observed(result).writeStream.format("noop"), folder)


# -- the data


def data(rng: np.random.Generator, rows: int, keys: int) -> pa.Table:
    """Return rows with each key equally often, in random order."""
    found = rng.permutation(np.arange(rows, dtype=np.int64) % keys)
    names = pc.binary_join_element_wise("customer-", pc.utf8_lpad(pa.array(found).cast("string"), 8, "0"), "")
    return pa.table({"key": names, "value": rng.integers(0, 1000, rows)})


def check(stream: Stream, batch: int, expected: tuple[int, int]) -> None:
    """Raise `RuntimeError` unless (keys, rows counted) is what was fed; `batch` has brought each key."""
    if stream.placed is not None:
        table = stream.placed.store("by-key").to_df().toArrow()
        found = (table.num_rows, pc.sum(table["n"]).as_py())
    elif out := sorted((stream.folder / "out" / f"batch_id={batch}").glob("*.parquet")):
        table = pa.concat_tables(pq.ParquetFile(file).read() for file in out)
        found = (table.num_rows, pc.sum(table["n"]).as_py())
    else:
        row = stream.progress(batch).observedMetrics["sent"]
        found = (row["keys"], row["n"])
    if found != expected:
        raise RuntimeError(f"{stream.name}: found {found}, expected {expected} (keys, rows counted)")


# -- the measurements


class Size:
    """One size's files: data, a tenth of it for warming up, and one without rows."""

    def __init__(self, folder: Path, rows: int, keys: int, seed: int) -> None:
        self.rows, self.keys = rows, keys
        rng = np.random.default_rng(seed)
        where = folder / "data"
        self.files = write_files(where, f"rows-{rows}", (data(rng, rows, keys) for _ in range(4)), parts=6)
        self.warm = write_files(where, f"warm-{rows}", [data(rng, rows // 10, keys // 10)])[0]
        self.empty = write_files(where, f"none-{rows}", [data(rng, 0, 1)])[0]


class Turn:
    """One variant: its stream, and what its measured batches took."""

    def __init__(self, stream: Stream, size: Size, often: int) -> None:
        self.stream, self.size, self.often = stream, size, often
        self.batches: dict[str, list[int]] = {"data": [], "empty": []}
        self.seconds: dict[str, list[float]] = {"data": [], "empty": []}
        self.files = 0
        self.last = 0

    def warm(self) -> None:
        """Run batches that do not count."""
        self.stream.run(self.size.warm)
        if self.often > 1:
            self._data()
        self.stream.run(self.size.empty)

    def take(self) -> None:
        """Run the batches of one round."""
        for _ in range(self.often):
            self._keep("data", self._data())
            self._keep("empty", self.stream.run(self.size.empty))

    def _data(self) -> float:
        file = self.size.files[self.files % len(self.size.files)]
        self.files, self.last = self.files + 1, self.stream.fed
        return self.stream.run(file)

    def _keep(self, kind: str, seconds: float) -> None:
        self.batches[kind].append(self.stream.fed - 1)
        self.seconds[kind].append(seconds)

    def figures(self) -> dict[str, Any]:
        """Check the result, and return what there is to say."""
        size = self.size
        check(self.stream, self.last, (size.keys, self.files * size.rows + size.rows // 10))
        median = {kind: statistics.median(some) for kind, some in self.seconds.items()}
        return {
            "seconds": median["data"],
            "rows_per_second": size.rows / median["data"],
            "empty_seconds": median["empty"],
            "all": self.seconds,
            "phases": {kind: self.stream.phases(some) for kind, some in self.batches.items()},
            "spans": {kind: self.stream.spans(some) for kind, some in self.batches.items()},
        }


def turns(
    spark: Any,
    out: Out,
    folder: Path,
    size: Size,
    variants: dict[str, Any],
    *,
    rounds: int,
    often: dict[str, int],
) -> dict[str, dict[str, Any]]:
    """Run rounds in which every variant takes data and empty files in turn, `often` of each (else one)."""
    taking = {
        name: Turn(Stream(spark, name, folder / f"{size.rows}-{i}", SCHEMA, start), size, often.get(name, 1))
        for i, (name, start) in enumerate(variants.items())
    }
    for turn in taking.values():
        turn.warm()
    out.note(f"{size.rows:,} rows: warm")
    for number in range(rounds):
        for name in in_turn(list(taking), number):
            taking[name].take()
        out.note(f"{size.rows:,} rows: round {number + 1} of {rounds}")
    found = {name: turn.figures() for name, turn in taking.items()}
    for turn in taking.values():
        turn.stream.stop()
    return found


def show(out: Out, size: Size, found: dict[str, dict[str, Any]]) -> None:
    out.say(f"\n{size.rows:,} rows onto {size.keys:,} keys a batch (medians; the range of all in brackets)")
    head = ["variant", "batch", "", "rows/s", "empty batch", ""]
    head += ["time: it / placed", "empty: placed / it"]
    rows = []
    for name, f in found.items():
        spans = {kind: f"({min(some):.2f}-{max(some):.2f})" for kind, some in f["all"].items()}
        against = PLACED if "Parquet" in name or PLACED_BARE not in found else PLACED_BARE
        than, empty = found[against], found[against]["empty_seconds"]
        speed = [f"{f['seconds']:.2f} s", spans["data"], f"{f['rows_per_second']:,.0f}"]
        cost = [f"{f['empty_seconds']:.2f} s", spans["empty"]]
        ratios = [f"{f['seconds'] / than['seconds']:.2f} x", f"{empty / f['empty_seconds']:.2f}"]
        rows.append([name, *speed, *cost, *ratios])
    out.table(head, rows)
    out.say("(rows with Parquet are beside `placed, Parquet`, the others beside `placed, no sink`)")
    for name in (PLACED, PLACED_BARE, NATIVE):
        for kind in ("data", "empty") if name in found else ():
            out.phases(f"{name}, {kind} batch, as Spark sees it", found[name]["spans"][kind])
            if found[name]["phases"][kind]:
                out.phases(f"{name}, {kind} batch, as taskplace sees it", found[name]["phases"][kind])


def standbys(spark: Any, out: Out, folder: Path, size: Size, blocks: int, length: int) -> dict[str, Any]:
    """Measure batches of two streams that differ in standbys alone; blocks of one and the other take turns."""
    streams = {
        n: Stream(spark, f"{n} standby", folder / f"standby-{n}", SCHEMA, placed(spark, n)) for n in (0, 1)
    }
    for stream in streams.values():
        for i in range(3):
            stream.run(size.files[i % len(size.files)])
    found: dict[str, Any] = {}
    interval = 0.0
    for kind in ("back to back", "with idle time"):
        seconds: dict[int, list[float]] = {0: [], 1: []}
        batches: dict[int, list[int]] = {0: [], 1: []}
        for block in range(blocks):
            for n in (0, 1) if block % 2 == 0 else (1, 0):
                block_batches = run_block(streams[n], size, length, interval)
                seconds[n] += [streams[n].seconds(batch) for batch in block_batches[1:]]
                batches[n] += block_batches[1:]
            out.note(f"{kind}: block {block + 1} of {blocks}, 0 and 1 standby")
        medians = {n: statistics.median(some) for n, some in seconds.items()}
        found[kind] = {
            "interval": interval or None,
            "seconds": medians,
            "ratio": medians[1] / medians[0],
            "all": seconds,
            "phases": {n: streams[n].phases(batches[n]) for n in streams},
        }
        interval = round(2 * max(medians.values()), 1)
    for n, stream in streams.items():
        check(stream, stream.fed - 1, (size.keys, stream.fed * size.rows))
        found[f"followed records, {n} standby"] = stream.placed.stats.followed
        stream.stop()
    return found


def run_block(stream: Stream, size: Size, length: int, interval: float) -> list[int]:
    """Feed some files, all at once or one per interval, and wait for the last; return the batches."""
    batches = []
    begin = time.monotonic()
    for i in range(length):
        if interval:
            time.sleep(
                max(0.0, begin + i * interval - time.monotonic())
            )  # the stream's pace, not a wait for it
        batches.append(stream.feed(size.files[i % len(size.files)]))
    stream.wait(batches[-1])
    return batches


def show_standbys(out: Out, size: Size, found: dict[str, Any]) -> None:
    out.say(
        f"\nWhat a standby costs the batches: {size.rows:,} rows onto {size.keys:,} keys, all of them change"
    )
    rows = []
    for kind in ("back to back", "with idle time"):
        f = found[kind]
        every = f", a batch every {f['interval']:.1f} s" if f["interval"] else ""
        spans = {n: f"({min(some):.2f}-{max(some):.2f})" for n, some in f["all"].items()}
        rows.append(
            [kind + every] + [f"{f['seconds'][n]:.2f} s {spans[n]}" for n in (0, 1)] + [f"{f['ratio']:.2f}"]
        )
    out.table(["stream", "0 standbys", "1 standby", "ratio"], rows)
    out.say(f"records that the standbys applied meanwhile: {found['followed records, 1 standby']:,}")
    for kind in ("back to back", "with idle time"):
        for n, phases in found[kind]["phases"].items():
            out.phases(f"{kind}, {n} standby", phases)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument(
        "--parts", default="standbys,large,small,python", help="what to measure (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of measured batches (%(default)s)")
    parser.add_argument(
        "--often", type=int, default=3, help="batches a round, but for the Python APIs (%(default)s)"
    )
    parser.add_argument("--blocks", type=int, default=3, help="blocks with and without standby (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    parts = args.parts.split(",")
    if not parts or set(parts) - {"standbys", "large", "small", "python"}:
        parser.error(f"--parts: found {args.parts!r}, expected some of standbys, large, small, python")
    out = Out(args, "bench-throughput")
    out.say(f"seed {args.seed}")
    rounds = 1 if args.quick else args.rounds
    with cluster("bench-throughput", args.scratch) as (spark, folder):
        out.note("cluster is up")
        both = {
            PLACED: placed(spark),
            PLACED_BARE: placed(spark, sink=False),
            NATIVE: native,
            NATIVE_PARQUET: native_parquet,
            NATIVE_LOGS: native_with_logs_as_placed,
        }
        pandas = {TWS: transform_with_state, APIWS: apply_in_pandas_with_state}
        small, large = (
            ((1_200, 120), (6_000, 600)) if args.quick else ((200_000, 10_000), (2_000_000, 100_000))
        )
        often = {} if args.quick else dict.fromkeys(both, args.often)
        for part in parts:
            size = Size(folder / part, *(large if part in ("large", "python") else small), args.seed)
            if part == "standbys":
                blocks, length = (1, 2) if args.quick else (args.blocks, 5)
                found = standbys(spark, out, folder / part, size, blocks, length)
                out.keep(part, found)
                show_standbys(out, size, found)
            else:
                variants = both if part == "large" else {**both, **pandas}
                turns_each = 1 if part == "python" else rounds
                found = turns(spark, out, folder / part, size, variants, rounds=turns_each, often=often)
                out.keep(f"{part}: {size.rows} rows, {size.keys} keys", found)
                show(out, size, found)
    out.close()


if __name__ == "__main__":
    main()
