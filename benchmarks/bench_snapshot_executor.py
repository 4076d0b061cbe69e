"""How much memory an executor needs for a large copy: to fill, snapshot, restore and read it.

    python benchmarks/bench_snapshot_executor.py --mib 2048 --heap-mib 900

One task with so many MiB of state, on a `local-cluster` whose executors have a heap of `--heap-mib`. What is shown for
each step is the highest anonymous memory of any of the executor's Python workers, and of its JVM, sampled 20 times a
second. Pages of LMDB's file belong to the system's cache, and are left out.

- fill half: batches of 8 MiB are committed; no snapshot is due
- snapshot of half: the last of these batches makes one due; a visit writes it
- fill: the other half is committed
- snapshot: the last batch makes the second one due; a visit writes it
- restore: the executor gets SIGKILL; the next one has no copy and restores the second snapshot
- read: the whole store is read as a data frame

There are two snapshots because with only one, the checkpoint still has the whole changelog, and replaying it is as
cheap. The run fails unless exactly the entries of the second snapshot were restored, and nothing was replayed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from spark_bench import Out, arguments, cluster, executor_count, executor_processes, wait_until

VALUE = 400  # bytes of an entry
BATCH_MIB = 8
SNAPSHOT_SECONDS = 1_200


def topology() -> Any:
    from taskplace.spark.processors import Aggregate, max_
    from topology import Topology

    topo = Topology("large")
    rows = topo.source("rows", key=["id"], partitions=1)
    rows.process(Aggregate("large", by={"id": "long"}, value=max_("value", "string")))
    return topo


class Executors:
    """Watches all executors, and keeps the highest anonymous memory of one Python worker and of one JVM."""

    def __init__(self) -> None:
        self._peaks = {"worker": 0, "jvm": 0}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        pids: dict[str, list[int]] = {}
        looked = 0.0
        while not self._over.wait(0.05):
            # Looking through all processes is much dearer than asking a few.
            if time.monotonic() - looked > 1:
                executors = list(executor_processes().values())
                workers = [worker.pid for executor in executors for worker in _children(executor)]
                pids = {"worker": workers, "jvm": [executor.pid for executor in executors]}
                looked = time.monotonic()
            for kind, running in pids.items():
                self._peaks[kind] = max([self._peaks[kind], *map(_anonymous, running)])

    def reset(self) -> dict[str, int]:
        """Return the highest so far, bytes, and begin anew."""
        peaks, self._peaks = self._peaks, {"worker": 0, "jvm": 0}
        return peaks

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
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--heap-mib", type=int, default=900)
    options = parser.parse_args()
    mib = 64 if options.quick else options.mib
    half = max(1, mib // BATCH_MIB // 2)
    rows = BATCH_MIB * (1 << 20) // VALUE
    out = Out(
        options,
        f"{2 * half * BATCH_MIB} MiB in one task",
        cluster=f"1 executor of 2 slots, {options.heap_mib} MiB heap; 1 partition",
    )
    conf = {"spark.executor.memory": f"{options.heap_mib}m"}
    with cluster("snapshot", options.scratch, executors=1, **conf) as (spark, folder):
        steps(spark, folder, half, rows, out)
    figures = out.figures["steps"]
    out.table(
        ["step", "peak of a worker", "peak of the JVM", "seconds"],
        [
            [name, f"{one['worker'] >> 20} MiB", f"{one['jvm'] >> 20} MiB", f"{one['seconds']:.1f}"]
            for name, one in figures.items()
        ],
    )
    out.close()


def steps(spark: Any, folder: Path, half: int, rows: int, out: Out) -> None:
    """Run all steps with twice `half` batches of `rows` rows each, and check what was restored and read."""
    from taskplace.spark import Placed
    from topology import TaskId

    task = TaskId(0, 0)
    figures: dict[str, dict[str, float]] = {}
    executors = Executors()

    def timed(name: str, step: Callable[[], Any]) -> Any:
        executors.reset()
        start = time.perf_counter()
        done = step()
        figures[name] = {**executors.reset(), "seconds": time.perf_counter() - start}
        out.keep("steps", figures)
        out.note(f"{name}: {int(figures[name]['worker']) >> 20} MiB, {figures[name]['seconds']:.1f} s")
        return done

    placed = Placed(
        spark,
        topology(),
        checkpoint=folder / "checkpoint",
        state_dir=folder / "state",
        snapshot_interval=half,
        snapshot_bytes=1 << 50,
    )

    def run(batch: int, rows: int = rows) -> None:
        df = spark.range(batch * rows, (batch + 1) * rows, numPartitions=2).selectExpr("id", VALUES)
        placed.process_batch(placed.unite({"rows": df}), batch)

    def fill(batches: range) -> None:
        for batch in batches:
            run(batch)

    def snapshot(batch: int) -> None:
        """Run the batch that makes a snapshot due, and wait until the snapshot is there."""
        run(batch)
        wait_until(
            lambda: placed.journal.snapshot_pending(task), "the driver knows of a snapshot", SNAPSHOT_SECONDS
        )

    def restore() -> None:
        (victim,) = executor_processes().values()
        os.kill(victim.pid, signal.SIGKILL)
        wait_until(lambda: victim.pid not in {p.pid for p in executor_processes().values()}, "it is dead", 60)
        for path in (folder / "state").rglob("data.mdb"):  # nothing to adopt: what is left is the snapshot
            path.unlink()
        wait_until(lambda: executor_count(spark) >= 1, "an executor is there", 90)
        run(2 * half + 1)

    timed("fill half", lambda: fill(range(half - 1)))
    timed("snapshot of half", lambda: snapshot(half - 1))
    timed("fill", lambda: fill(range(half, 2 * half - 1)))
    timed("snapshot", lambda: snapshot(2 * half - 1))
    run(2 * half, rows=0)  # its manifest names the snapshot
    named = {s.version: s.records for s in placed.journal.history[task].snapshots}
    before = placed.stats.replayed, placed.stats.restored
    timed("restore", restore)
    replayed, restored = (
        now - then for now, then in zip((placed.stats.replayed, placed.stats.restored), before, strict=True)
    )
    counted = timed("read", lambda: placed.store("large").to_df().count())
    executors.stop()
    placed.close()
    expected = {half - 1: half * rows, 2 * half - 1: 2 * half * rows}
    if named != expected:
        raise SystemExit(f"snapshots, by version: {named} entries instead of {expected}")
    if (replayed, restored) != (0, 2 * half * rows):
        raise SystemExit(
            f"{restored} entries restored from a snapshot instead of {2 * half * rows}; {replayed} replayed"
        )
    if counted != (2 * half + 1) * rows:
        raise SystemExit(f"{counted} entries instead of {(2 * half + 1) * rows}")
    out.keep("restored", restored)


#: 400 bytes by key that hardly compress: five hashes of 64 digits, and a part of one more.
VALUES = "concat(" + ", ".join(f"sha2(cast(id + {k} as string), 256)" for k in range(6)) + ") as value"

if __name__ == "__main__":
    main()
