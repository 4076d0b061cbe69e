"""What a boundary between two subtopologies costs with many tasks: seconds of processor time for one batch.

    python benchmarks/bench_boundaries.py [--tasks 12,200,1000] [--rows 2]

N tasks write for N tasks, without Spark. Each writer has `--rows` rows for each reader on average, so nearly all N * N
slices exist. The readers belong to three executors of two slots, in turn, and run in the bins of the driver's own code.
Each bin reads the listing itself, as in a worker of its own.

- "write": the boundary files, with the checksums of their slices
- "reports": encode them in the tasks and decode them on the driver
- "list": on the driver, the bytes of each reader and the listing
- "find": in all bins, read the listing, choose slices, open the files, read the slices, check them, and make the table
  of the first task
- "decode": make the tables of the other tasks
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from taskplace.spark.checkpoint.files import SectionFile
from taskplace.spark.cluster import Executor
from taskplace.spark.driver import bins
from taskplace.spark.messages import Boundary, Recovery, Report, Setting
from taskplace.spark.worker import boundary
from taskplace.spark.worker.boundary import InternalRows, read_listing, write_listing
from topology import TaskId

TOPIC = "totals"
EXECUTORS = [Executor(str(number), "host", 2) for number in range(3)]
#: Bins of writers, each with a boundary file: two for each slot.
BINS = 12


class Clock:
    """Adds up processor time by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


def written(root: Path, tasks: int, rows: int, clock: Clock) -> list[Boundary]:
    """Let all tasks of the first subtopology write their rows."""
    boundaries = []
    files = [SectionFile(root, f"topics/{TOPIC}/{number}.arrow") for number in range(min(tasks, BINS))]
    for task in range(tasks):
        keys = range(task, task + rows * tasks)
        table = pa.table(
            {"k": keys, "name": [f"n{key}" for key in keys], "total": [float(key) for key in keys]}
        )
        with clock.step("write"):
            boundaries.append(boundary.write(files[task % len(files)], table, ["k"], tasks, topic=TOPIC))
    return boundaries


def reported(boundaries: Sequence[Boundary], clock: Clock) -> list[Report]:
    """Send the boundaries to the driver."""
    reports = [
        Report(
            task=TaskId(0, task),
            attempt="attempt",
            instance="executor-1",
            planned="executor-1",
            change=None,
            sinks={},
            boundaries={TOPIC: one},
            rows=0,
            recovery=Recovery(),
            seconds={},
        )
        for task, one in enumerate(boundaries)
    ]
    with clock.step("reports"):
        return [Report.decode(report.encode()) for report in reports]


def measure(tasks: int, rows: int) -> tuple[Clock, int, int, int]:
    """Return the seconds by step, and the number of slices, of bins, and of bytes of the listing."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        reports = reported(written(root, tasks, rows, clock), clock)
        boundaries = [report.boundaries[TOPIC] for report in reports]
        with clock.step("list"):
            sizes = Counter[int]()
            for one in boundaries:
                sizes.update({partition: piece.length for partition, piece in one.slices.items()})
            listing = write_listing(root, "listing", {TOPIC: boundaries})
        owners = {task: EXECUTORS[task % len(EXECUTORS)] for task in range(tasks)}
        order = bins.owner_order(owners)
        cut = bins.cut(order, owners, [sizes.get(task, 0) for task in range(tasks)], running=owners)
        setting = Setting(
            checkpoint=str(root),
            state_root="",
            spark_app="",
            epoch=1,
            batch=0,
            generation=1,
            schema=None,
            compression=None,
            bytes_per_task=1,
            inputs=listing,
        )
        found = 0
        for bin_ in cut:
            read_listing.cache_clear()
            read = InternalRows(setting, (TOPIC,), bin_.partitions)
            for number, task in enumerate(bin_.partitions):
                with clock.step(
                    "decode" if number else "find"
                ):  # the first task has all rows of the bin read
                    table = read.of(task)[TOPIC]
                found += table.num_rows
        if found != tasks * tasks * rows:
            raise SystemExit(f"{found} rows arrived, expected {tasks * tasks * rows}")
    return clock, sum(len(one.slices) for one in boundaries), len(cut), listing.size


def main() -> None:
    """Print one row for each number of tasks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default="12,200,1000", help="numbers of tasks on both sides")
    parser.add_argument("--rows", type=int, default=2, help="rows for each pair of writer and reader")
    args = parser.parse_args()
    names = ("write", "reports", "list", "find", "decode")
    print(f"| tasks | slices | bins | listing | {' | '.join(names)} | listing and finding |")
    print(f"|{'---|' * (len(names) + 5)}")
    for tasks in map(int, args.tasks.split(",")):
        clock, slices, cut, size = measure(tasks, args.rows)
        figures = " | ".join(f"{clock.seconds[name]:.2f} s" for name in names)
        finding = clock.seconds["list"] + clock.seconds["find"]
        print(
            f"| {tasks:,} | {slices:,} | {cut} | {size / 1e6:.1f} MB | {figures} | {finding:.2f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
