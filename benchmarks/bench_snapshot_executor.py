"""How much memory an executor's Python workers need for a large copy: to fill, snapshot, restore and read it.

    python benchmarks/bench_snapshot_executor.py --mib 2048 --heap-mib 900

One task with so many MiB of state, on a `local-cluster` whose executors have a heap of `--heap-mib`. What is shown for
each step is the highest anonymous memory of any Python worker, sampled 20 times a second. Pages of LMDB's file belong
to the system's cache, and are left out.

- fill: batches of 8 MiB are committed; no snapshot is due
- snapshot: the last batch makes one due; a visit writes it
- restore: the executor of the task gets SIGKILL; the next one has no copy and restores the snapshot
- read: the whole store is read as a data frame
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from spark_bench import arguments, cluster, executor_count, executor_processes, wait_until

VALUE = 400  # bytes of an entry
BATCH_MIB = 8


def topology() -> Any:
    from taskplace.spark.processors import Aggregate, max_
    from topology import Topology

    topo = Topology("large")
    rows = topo.source("rows", key=["id"], partitions=1)
    rows.process(Aggregate("large", by={"id": "long"}, value=max_("value", "string")))
    return topo


class Workers:
    """Watches the Python workers of all executors, and keeps the highest anonymous memory of one of them."""

    def __init__(self) -> None:
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        pids: list[int] = []
        looked = 0.0
        while not self._over.wait(0.05):
            if (
                time.monotonic() - looked > 1
            ):  # looking through all processes is much dearer than asking a few
                pids = [p.pid for e in executor_processes().values() for p in _children(e)]
                looked = time.monotonic()
            self.peak = max([self.peak, *map(_anonymous, pids)])

    def reset(self) -> int:
        """Return the highest so far, bytes, and begin anew."""
        peak, self.peak = self.peak, 0
        return peak

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _anonymous(pid: int) -> int:
    """Return the anonymous memory of a process, bytes; 0 if it has gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) << 10
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--heap-mib", type=int, default=900)
    options = parser.parse_args()
    mib = 64 if options.quick else options.mib
    batches = max(2, mib // BATCH_MIB)
    rows = BATCH_MIB * (1 << 20) // VALUE
    with cluster(
        "snapshot", options.scratch, executors=1, **{"spark.executor.memory": f"{options.heap_mib}m"}
    ) as (spark, folder):
        figures = steps(spark, folder, batches, rows)
    print(f"{mib} MiB in one task; executors with a heap of {options.heap_mib} MiB")
    print(f"{'step':10} {'peak of a worker, MiB':>22} {'seconds':>8}")
    for name, (peak, seconds) in figures.items():
        print(f"{name:10} {peak >> 20:22} {seconds:8.1f}")


def steps(spark: Any, folder: Path, batches: int, rows: int) -> dict[str, tuple[int, float]]:
    from taskplace.spark import Placed
    from topology import TaskId

    figures: dict[str, tuple[int, float]] = {}
    workers = Workers()

    def timed(name: str, step: Callable[[], Any]) -> Any:
        workers.reset()
        start = time.perf_counter()
        done = step()
        figures[name] = (workers.reset(), time.perf_counter() - start)
        print(
            f"  {name}: {figures[name][0] >> 20} MiB, {figures[name][1]:.1f} s", file=sys.stderr, flush=True
        )
        return done

    placed = Placed(
        spark,
        topology(),
        checkpoint=folder / "checkpoint",
        state_dir=folder / "state",
        snapshot_interval=batches,
        snapshot_bytes=1 << 50,
    )

    def run(batch: int) -> None:
        df = spark.range(batch * rows, (batch + 1) * rows, numPartitions=2).selectExpr("id", VALUES)
        placed.process_batch(placed.unite({"rows": df}), batch)

    def has_snapshot() -> bool:
        return placed.journal.snapshot_pending(TaskId(0, 0))

    timed("fill", lambda: [run(batch) for batch in range(batches - 1)])

    def snapshot() -> None:
        run(batches - 1)
        wait_until(has_snapshot, "the driver knows of a snapshot", 1_200)
        placed.process_batch(placed.unite({"rows": spark.range(0).selectExpr("id", VALUES)}), batches)

    timed("snapshot", snapshot)

    def restore() -> None:
        (victim,) = executor_processes().values()
        os.kill(victim.pid, signal.SIGKILL)
        wait_until(lambda: victim.pid not in {p.pid for p in executor_processes().values()}, "it is dead", 60)
        for path in (folder / "state").rglob("data.mdb"):  # nothing to adopt: what is left is the snapshot
            path.unlink()
        wait_until(lambda: executor_count(spark) >= 1, "an executor is there", 90)
        run(batches + 1)

    timed("restore", restore)
    restored = placed.stats.restored
    counted = timed("read", lambda: placed.store("large").to_df().count())
    workers.stop()
    placed.close()
    expected = (batches + 1) * rows
    if counted != expected or not restored:
        raise SystemExit(f"{counted} entries instead of {expected}; {restored} restored from a snapshot")
    return figures


#: 400 bytes by key that hardly compress: five hashes of 64 digits, and a part of one more.
VALUES = "concat(" + ", ".join(f"sha2(cast(id + {k} as string), 256)" for k in range(6)) + ") as value"

if __name__ == "__main__":
    main()
