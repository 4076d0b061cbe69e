"""How many files a checkpoint has after so many batches of the flights job, by kind.

    python benchmarks/bench_files.py [--batches 30,1000] [--every N] [--parts placed,spark] [--quick] [--json FILE]

- placed: the state's part of the checkpoint, without Spark, in one process. Topology, placement and runtime are those
  of `conf/flights.yaml`: two subtopologies of 12 tasks, three executors of two slots, one standby. The cluster is
  the stand-in of the tests (`tests/support/placed_without_spark.py`), with a worker for each slot. All files come from
  the driver's and the executors' own code. Followers are up to date after each batch, and all snapshots that are due
  are made. The result is checked: each flight counts once.
- spark: Spark's own part, `spark/`. A query on `local[2]` reads two file streams, one file of each a batch, as the job
  does, and its `foreachBatch` does nothing.

For each number of batches there is a run of its own. It cuts a year of departures into as many spans, so the rows of
all runs are the same. A kind is a directory of the checkpoint: `changelog`, `snapshots`, `manifests`, `epochs`; of
batches their reports (`attempts`), lists of input (`inputs`), boundary files (`topics`) and staged output (`sinks`).
`--every N` also counts after every N batches.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from spark_bench import CONF, ROOT, Out, arguments, write_files

from taskplace.spark.cluster import Executor
from taskplace.spark.worker import bin_context as segments
from tests.support.placed_without_spark import World

EXECUTORS, SLOTS = 3, 2
PARTS = ("placed", "spark")
SUM = "all"

Counts = dict[str, tuple[int, int]]


# -- the rows


def spans(number: int) -> Iterator[dict[str, pa.Table]]:
    """Yield a year's flights and their weather in spans of equal length, with the columns that the job reads."""
    from examples.flights.data import load
    from examples.flights.topology import FLIGHT_COLUMNS, WEATHER_COLUMNS

    tables = load()
    rows = {
        "flights": tables.flights.select(list(FLIGHT_COLUMNS)).sort_by("time_hour"),
        "weather": tables.weather.select(list(WEATHER_COLUMNS)).sort_by("time_hour"),
    }
    hours = {name: table["time_hour"].cast(pa.int64()).to_numpy() for name, table in rows.items()}
    first, last = min(some[0] for some in hours.values()), max(some[-1] for some in hours.values())
    edges = np.linspace(first, last + 1, number + 1)
    cuts = {name: np.searchsorted(some, edges) for name, some in hours.items()}
    for i in range(number):
        yield {name: rows[name].slice(cut[i], cut[i + 1] - cut[i]) for name, cut in cuts.items()}


# -- what there is


def kind(path: Path) -> str:
    """Return the kind of a file by its path in the checkpoint.

    >>> kind(Path("changelog/0_3/17-a.arrow")), kind(Path("batches/17/attempts/0/0_3.json")), kind(Path("tick"))
    ('changelog', 'batches/attempts', 'others')
    >>> kind(Path("spark/.metadata.crc")), kind(Path("spark/offsets/17"))
    ('spark/metadata', 'spark/offsets')
    """
    parts = path.parts
    if parts[0] == "batches":
        return "/".join((parts[0], *parts[2:3])) if len(parts) > 3 else "batches"
    if parts[0] == "spark":  # a checksum file of Spark counts with its file
        return f"spark/{parts[1].removeprefix('.').removesuffix('.crc')}"
    return parts[0] if len(parts) > 1 else "others"


def counted(checkpoint: Path) -> Counts:
    """Return the number of files, and their bytes, by kind and in all."""
    found: Counts = {}
    for where, _, names in os.walk(checkpoint):
        for path in (Path(where, name) for name in names):
            size = path.stat().st_size
            for one in (kind(path.relative_to(checkpoint)), SUM):
                files, total = found.get(one, (0, 0))
                found[one] = files + 1, total + size
    return found


# -- the two parts


class Workers(World):
    """The stand-in with several slots an executor. Each slot is a worker, with changelog files of its own."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._open: dict[tuple[str, int], Any] = {}
        super().__init__(*args, **options)

    def come(self, number: int = 1) -> list[str]:
        ids = super().come(number)
        self.there |= {id: Executor(id, f"host-{id}", SLOTS) for id in ids}
        return ids

    def _task(self, job: Any, i: int, where: str) -> list[str] | None:
        segments.OPEN = self._open.setdefault((where, i % SLOTS), {})
        return super()._task(job, i, where)


def placed(folder: Path, batches: int, counting: Iterable[int]) -> Iterator[tuple[int, Counts, float]]:
    """Run the job on the stand-in, and yield what there is after these batches, with the median seconds of a batch."""
    from pytest import MonkeyPatch

    from taskplace.spark import ParquetSink
    from taskplace.spark.yaml_application import declared_topology
    from taskplace.spec.application import Settings

    settings = Settings.load(ROOT / "conf" / "flights.yaml")
    topology = declared_topology(settings, {"delays-by-batch": ParquetSink(folder / "output")})
    flights, seconds, counting = 0, [], frozenset(counting)
    with MonkeyPatch.context() as patches:
        patches.setattr(segments, "OPEN", {})  # and what it was before, afterwards
        world = Workers(folder, patches, executors=EXECUTORS)
        stream = world.open(topology, config=settings.placement.to_properties(), options=settings.runtime)
        for number, rows in enumerate(spans(batches)):
            start = time.perf_counter()
            world.batch(stream, number, **rows)
            seconds.append(time.perf_counter() - start)
            world.follow(stream)
            flights += rows["flights"].num_rows
            if number + 1 in counting:
                yield number + 1, counted(stream.checkpoint), statistics.median(seconds)
        found: Any = stream.store("delays-by-aircraft").to_df()
        stream.close()
    if (there := pc.sum(found["flights"]).as_py()) != flights:
        raise RuntimeError(f"found {there} flights in the store, expected {flights}")


def sparks_own(folder: Path, batches: int, counting: Iterable[int]) -> Iterator[tuple[int, Counts, float]]:
    """Run a query of Spark that does nothing with the job's input, and yield what there is after these batches."""
    from pyspark.sql import SparkSession

    from examples.flights.topology import FLIGHT_COLUMNS, WEATHER_COLUMNS

    os.environ["PYSPARK_PYTHON"] = sys.executable
    columns = {"flights": FLIGHT_COLUMNS, "weather": WEATHER_COLUMNS}
    for name in columns:
        files = write_files(folder / name, name, (rows[name] for rows in spans(batches)))
        for number, file in enumerate(files):
            os.utime(file, (1e9 + number, 1e9 + number))  # Spark reads them in this order
    conf = {**CONF, "spark.local.dir": str(folder / "local"), "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").appName("bench-files").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    counting = frozenset(counting)
    found: list[tuple[int, Counts, float]] = []
    seconds = [time.perf_counter()]

    def batch(_: Any, number: int) -> None:
        # The batch before is committed by now, and the offsets of this one are written.
        seconds.append(time.perf_counter())
        if number in counting:
            found.append((number, counted(folder / "checkpoint"), statistics.median(np.diff(seconds))))

    try:
        frames = [
            spark.readStream.schema(", ".join(f"{n} {t}" for n, t in some.items()))
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / name))
            .selectExpr("origin", "time_hour")
            for name, some in columns.items()
        ]
        query = frames[0].union(frames[1]).writeStream.foreachBatch(batch)
        query = query.option("checkpointLocation", str(folder / "checkpoint" / "spark"))
        query.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.stop()
    yield from found
    yield batches, counted(folder / "checkpoint"), statistics.median(np.diff(seconds))


RUNS = {"placed": placed, "spark": sparks_own}


def show(out: Out, batches: int, found: dict[str, dict[int, Counts]]) -> None:
    """Print files and bytes by kind, a pair of columns for each number of batches."""
    for part, counts in found.items():
        out.say(f"\n{part}, a run of {batches:,} batches: files, and their bytes, after so many batches")
        kinds = sorted({kind for some in counts.values() for kind in some} - {SUM})
        rows = [
            [
                kind,
                *(
                    f"{some[kind][0]:,} ({some[kind][1]:,})" if kind in some else "-"
                    for some in counts.values()
                ),
            ]
            for kind in [*kinds, SUM]
        ]
        out.table(["kind", *(f"{number:,}" for number in counts)], rows)
    if len(found) == len(PARTS):
        files, size = (sum(counts[batches][SUM][i] for counts in found.values()) for i in range(2))
        out.say(f"both parts after {batches:,} batches: {files:,} files, {size:,} bytes")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--batches", default="30,1000", help="batches of each run (%(default)s)")
    parser.add_argument("--every", type=int, default=0, help="also count after every so many batches")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to count (%(default)s)")
    args = parser.parse_args()
    parts = args.parts.split(",")
    if not parts or set(parts) - set(PARTS):
        parser.error(f"--parts: found {args.parts!r}, expected some of {', '.join(PARTS)}")
    numbers = [3] if args.quick else [int(number) for number in args.batches.split(",")]
    out = Out(
        args,
        "bench-files",
        cluster=f"{EXECUTORS} executors of {SLOTS} slots without Spark, 1 standby; Spark on local[2]",
    )
    for batches in numbers:
        counting = {batches, *range(args.every, batches, args.every)} if args.every else {batches}
        found: dict[str, dict[int, Counts]] = {}
        for part in parts:
            with tempfile.TemporaryDirectory(prefix="bench-files-", dir=args.scratch) as name:
                for number, counts, seconds in RUNS[part](Path(name), batches, counting):
                    found.setdefault(part, {})[number] = counts
                    files, _ = counts[SUM]
                    out.note(
                        f"{part}: {number:,} of {batches:,} batches, {seconds:.2f} s each: {files:,} files"
                    )
        out.keep(f"{batches} batches", found)
        show(out, batches, found)
    out.close()


if __name__ == "__main__":
    main()
