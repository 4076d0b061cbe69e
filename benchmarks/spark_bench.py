"""What the two Spark benchmarks share: one cluster, streams that are fed file by file, and what the machine was like.

Every variant is a streaming query of its own in the same session. All read the same Parquet files through Spark's file
source (`maxFilesPerTrigger=1`, so a file is a batch). All are timed in the same two ways, both Spark's own:

- a batch's seconds are `durationMs.triggerExecution` of its progress;
- a batch is committed when its file is in the query's commit log, at that file's modification time.

Only one query has input at a time; the others idle. Between two queries the waits for locality are put back to what
each would have if it were alone: Spark's 3 s, and the 30 s that `Placed` asks for.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

EXECUTORS = 3
PARTITIONS = 12
CLUSTER = f"{EXECUTORS} executors of 2 slots, 900 MB heap each; {PARTITIONS} partitions"
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONF = {
    "spark.executor.memory": "900m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": PROVIDER,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.pollingDelay": "100ms",  # how often a query without input looks for some
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


def arguments(description: str) -> argparse.ArgumentParser:
    """Return the parser of what both benchmarks take."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run: tiny sizes, figures mean nothing")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--scratch", help="where to keep data, checkpoints and state while it runs")
    return parser


@contextlib.contextmanager
def cluster(
    name: str, scratch: str | None, *, executors: int = EXECUTORS, **conf: str
) -> Iterator[tuple[Any, Path]]:
    """Yield a session on a real local-cluster and an empty directory; both are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=scratch))
    try:
        with session(name, folder / "spark", executors=executors, **conf) as spark:
            wait_until(lambda: executor_count(spark) >= executors, "all executors are there", 90)
            yield spark, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def session(name: str, local: Path, *, executors: int = EXECUTORS, **conf: str) -> Iterator[Any]:
    """Yield a session whose executors are on their way, with its files in `local`; it is stopped afterwards."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local-cluster[{executors},2,1024]").appName(name)
    spark = builder.config(map={**CONF, "spark.local.dir": str(local), **conf}).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # an executor that is killed is no news here
    try:
        yield spark
    finally:
        before = list(executor_processes().values())
        for query in spark.streams.active:
            query.stop()
        spark.stop()
        for process in psutil.wait_procs(before, timeout=10)[1]:  # those that did not hear of it
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def executor_count(spark: Any) -> int:
    """Return how many executors the scheduler has."""
    ids = spark.sparkContext._jsc.sc().getExecutorIds()
    return int(ids.size())


def executor_processes() -> dict[str, psutil.Process]:
    """Return the JVMs of the executors that this process has started, by executor id."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            command = process.cmdline()
            if "--executor-id" in command and process.status() != psutil.STATUS_ZOMBIE:
                found[command[command.index("--executor-id") + 1]] = process
    return found


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for an event. Errors: `TimeoutError` with its name."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """Return the names in the order of a round: each round begins with the next one."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


class Stream:
    """One variant: a streaming query with an input directory of its own, fed file by file.

    `start(frame, folder)` starts it and returns Spark's query, the directory of its Spark checkpoint, and the `Placed`
    behind it or None. Files are linked, so all variants read the same bytes. An earlier stream in the folder is
    continued: its input counts as fed.
    """

    def __init__(
        self, spark: Any, name: str, folder: Path, schema: str, start: Callable[[Any, Path], Any]
    ) -> None:
        self.spark, self.name, self.folder = spark, name, folder
        self._input = folder / "input"
        self._input.mkdir(parents=True, exist_ok=True)
        self.fed = len(list(self._input.iterdir()))
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self._input))
        self.query, checkpoint, self.placed = start(frame, folder)
        self._commits = checkpoint / "commits"

    def feed(self, file: Path) -> int:
        """Give it a file and return the number of the batch that this will be."""
        self._localities()
        batch, self.fed = self.fed, self.fed + 1
        os.link(file, self._input / f"{batch:06}.parquet")
        return batch

    def wait(self, batch: int, seconds: float = 900) -> float:
        """Wait until a batch is committed, and return when it was (seconds since 1970)."""
        file = self._commits / str(batch)

        def committed() -> bool:
            if not self.query.isActive:
                raise RuntimeError(f"{self.name}: the query ended: {self.query.exception()}")
            return file.exists()

        wait_until(committed, f"{self.name}: batch {batch}", seconds)
        return file.stat().st_mtime

    def progress(self, batch: int) -> Any:
        """Return Spark's progress of a committed batch, which follows the commit by a moment."""
        found: dict[int, Any] = {}

        def there() -> bool:
            # A trigger that found no input has a progress too, under the number of the batch that will come.
            ran = (p for p in self.query.recentProgress if p.batchId == batch and "addBatch" in p.durationMs)
            found.update({p.batchId: p for p in ran})
            return batch in found

        wait_until(there, f"{self.name}: progress of batch {batch}", 60)
        return found[batch]

    def seconds(self, batch: int) -> float:
        """Return how long a committed batch took: planning, running and committing."""
        return self.progress(batch).durationMs["triggerExecution"] / 1000

    def spans(self, batches: Sequence[int]) -> dict[str, float]:
        """Return the median seconds of each phase that Spark reports of these batches; `addBatch` runs them."""
        found: dict[str, list[float]] = {}
        for batch in batches:
            for name, milliseconds in self.progress(batch).durationMs.items():
                found.setdefault(name, []).append(milliseconds / 1000)
        return {name: statistics.median(seconds) for name, seconds in sorted(found.items())}

    def run(self, file: Path) -> float:
        """Feed a file, wait for its batch, and return the batch's seconds."""
        batch = self.feed(file)
        self.wait(batch)
        return self.seconds(batch)

    def phases(self, batches: Sequence[int]) -> dict[str, float]:
        """Return the median seconds of each phase of a placed stream's batches; "tasks: x" is added up over tasks."""
        if self.placed is None:
            return {}
        lists = {name: [s[b] for b in batches if b < len(s)] for name, s in self.placed.stats.phases.items()}
        return {name: statistics.median(some) for name, some in lists.items() if some}

    def stop(self) -> None:
        """End it and remove what it kept."""
        self.query.stop()
        if self.placed is not None:
            self.placed.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _localities(self) -> None:
        conf = self.spark.sparkContext._jsc.sc().conf()
        conf.set("spark.locality.wait", "3s" if self.placed is None else "30s")


def start_placed(
    spark: Any, frame: Any, folder: Path, topology: Any, standbys: int, **options: Any
) -> tuple[Any, Path, Any]:
    """Start a placed stream over one source, as `Stream` wants it."""
    from taskplace.spark import Placed
    from taskplace.spark.bridge import start_query

    placed = Placed(
        spark,
        topology,
        checkpoint=folder / "checkpoint",
        state_dir=folder / "state",
        config={"num.standby.replicas": standbys},
        **options,
    )
    writer = frame.writeStream.foreachBatch(placed.process_batch)
    writer = writer.option("checkpointLocation", str(folder / "query"))
    return start_query(writer, spark), folder / "query", placed  # as `Placed.start` does it


def start_native(
    writer: Any, folder: Path, start: Callable[[Any], Any] = lambda writer: writer.start()
) -> tuple[Any, Path, None]:
    """Start a query of Spark's own, as `Stream` wants it."""
    writer = writer.outputMode("update").option("checkpointLocation", str(folder / "query"))
    return start(writer), folder / "query", None


def write_files(
    folder: Path, name: str, tables: Iterator[pa.Table] | Sequence[pa.Table], parts: int = 1
) -> list[Path]:
    """Write one Parquet file per table, in row groups so that a file can be read in `parts` splits."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for i, table in enumerate(tables):
        files.append(folder / f"{name}-{i:03}.parquet")
        pq.write_table(table, files[-1], row_group_size=max(1, -(-table.num_rows // parts)))
    return files


def machine(cluster: str) -> dict[str, Any]:
    """Return what the figures depend on: versions, cores, memory, and the cluster as it is given."""
    import pyspark

    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return {
        "pyspark": pyspark.__version__,
        "java": java.splitlines()[0] if java else "unknown",
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "cluster": cluster,
    }


class Out:
    """Prints as it goes, notes the load beside each line of figures, and keeps everything for `--json`."""

    def __init__(self, args: argparse.Namespace, title: str, *, cluster: str = CLUSTER) -> None:
        self._json = args.json
        self.figures: dict[str, Any] = {"title": title, "quick": args.quick, "machine": machine(cluster)}
        self.loads: list[float] = []
        self._start = time.monotonic()
        self.say(title + (" (--quick: the figures mean nothing)" if args.quick else ""))
        self.say(", ".join(f"{key} {value}" for key, value in self.figures["machine"].items()))

    def say(self, text: str = "") -> None:
        """Print a line now."""
        print(text, flush=True)

    def note(self, text: str) -> None:
        """Print what has just been done, with the time and the load."""
        load = os.getloadavg()[0]
        self.loads.append(load)
        self.say(f"  [{time.monotonic() - self._start:5.0f} s, load {load:4.1f}] {text}")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table."""
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        lines = [
            " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths)))  # noqa: B905
            for r in [head, *rows]
        ]
        self.say("\n".join([lines[0], "-" * len(lines[0]), *lines[1:]]))

    def keep(self, name: str, figures: Any) -> None:
        """Take figures in, and write what there is so far."""
        self.figures[name] = figures
        self._write()

    def phases(self, what: str, phases: Mapping[str, float]) -> None:
        """Print where a placed batch's time goes."""
        self.say(f"{what}: " + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in phases.items()))

    def close(self) -> None:
        """Say how busy the machine was, and write the file."""
        loads = [round(load, 1) for load in self.loads]
        self.figures |= {
            "load_1min": loads,
            "finished": datetime.now().isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._start),
        }
        if loads:
            median = statistics.median(loads)
            self.say(f"load (1 min) while it ran: {min(loads)} to {max(loads)}, median {median:.1f}")
        self._write()
        if self._json:
            self.say(f"figures: {self._json}")

    def _write(self) -> None:
        if self._json:
            Path(self._json).write_text(json.dumps(self.figures, indent=1) + "\n", encoding="utf-8")
