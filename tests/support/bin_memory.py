"""Runs a bin of several tasks in a process of its own, brought by PySpark's own serializers, and measures its memory.

    python -m tests.support.bin_memory FOLDER [LIMIT]      prints {"before": bytes, "peak": bytes, "bin": bytes}

LIMIT: how many bytes of private memory the process may have beyond what it has before the bin (RLIMIT_DATA).
`written` makes the file of the bin, in another process, so that nothing of it is left in this one.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
import uuid
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from taskplace.spark.messages import AttemptDescriptor, BinDescriptor, History, ReportGroup, Setting
from taskplace.spark.worker.bins import run_stage
from taskplace.spark.worker.external import PARTITION, with_batches
from taskplace.spark.worker.program import Operator, Program
from topology import TaskId

TASKS = 8
ROWS = 1000  # of an Arrow batch
VALUE = 1000  # bytes of a row
#: What the processor takes for a task, so that it shows what is held meanwhile.
WORK = 48 << 20


class Heavy:
    """A processor that needs much memory for a moment."""

    def layouts(self) -> dict:
        return {}

    def process(self, context: object, rows: pa.Table) -> pa.Table:
        np.ones(WORK, np.int8)
        return rows.slice(0, 0)


PROGRAM = Program(
    0,
    (Operator("in", "source", topic="in"), Operator("heavy", "processor", ("in",), processor=Heavy())),
    {},
    external={"in": 0},
)


def written(path: Path, size: int) -> int:
    """Write a bin of `TASKS` tasks with about `size` bytes, as Spark sends it. Return the bytes of its batches."""
    random = np.random.default_rng(1)
    batches = []
    for _ in range(size // (ROWS * VALUE)):
        values = [random.bytes(VALUE) for _ in range(ROWS)]
        columns = {PARTITION: pa.array(random.integers(0, TASKS, ROWS), pa.int32()), "v": values}
        batches.append(pa.RecordBatch.from_pydict(columns).serialize().to_pybytes())
    tasks = (TaskId(0, partition) for partition in range(TASKS))
    descriptor = BinDescriptor(tuple(AttemptDescriptor(task, "", History()) for task in tasks)).encode()
    with path.open("wb") as file:
        for batch in batches:
            for part in (descriptor, batch):
                file.write(len(part).to_bytes(4, "big") + part)
    return sum(map(len, batches))


def run(folder: Path, path: Path) -> None:
    """Run the bin that a file has, as PySpark's worker does."""
    from pyspark.serializers import NoOpSerializer, PairDeserializer

    schema = pa.schema([(PARTITION, pa.int32()), ("v", pa.binary())]).serialize().to_pybytes()
    directories = str(folder / "cp"), str(folder / "state")
    setting = Setting(*directories, "app", 1, 0, 1, schema, None, 1 << 30, run=uuid.uuid4().hex)
    serializer = PairDeserializer(NoOpSerializer(), NoOpSerializer())
    with path.open("rb") as file:
        found = [*with_batches(partial(run_stage, PROGRAM, setting.encode()), serializer.load_stream(file))]
    rows = sum(report.rows for group in found for report in ReportGroup.decode(group).reports)
    if rows * VALUE < path.stat().st_size // 2:
        raise ValueError(f"only {rows} rows were processed")


def memory(name: str) -> int:
    """Return a figure of this process: RssAnon, what is held in memory, or VmData, what RLIMIT_DATA counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise OSError(f"no {name} in /proc/self/status")


def main(folder: Path, limit: int | None) -> None:
    run(folder, folder / "small")  # loads what is loaded late
    peak = before = memory("RssAnon")
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory("VmData") + limit,) * 2)
    over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.is_set():
            peak = max(peak, memory("RssAnon"))
            time.sleep(0.001)

    thread = None
    if limit is None:
        thread = threading.Thread(target=watch)
        thread.start()
    run(folder, folder / "bin")
    over.set()
    if thread is not None:
        thread.join()
    print(json.dumps({"before": before, "peak": peak, "bin": (folder / "bin").stat().st_size}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
