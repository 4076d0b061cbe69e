"""A small keyed pipeline with known answers, and functions that wait for events."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from topology import TaskId

EXECUTORS = 3

#: Options for short-lived JVMs: fast compilation, and one garbage collection thread.
SHORT_LIVED = dict.fromkeys(
    ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"),
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)


def wait_until(condition, what: str, seconds: float = 60.0) -> None:
    """Wait for an event. Fail with its name if it does not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


def kill_executor(placed, instance: str) -> None:
    os.kill(placed.state.members[instance].pid, signal.SIGKILL)


def data(batch: int, rows: int = 600) -> list[tuple[str, str, int]]:
    return [(f"k{i * 7 % 97}", f"g{(i + batch) % 11}", i * (batch + 1)) for i in range(rows)]


class FaultOrders:
    """Orders to die (`taskplace.spark.faults`), one at a time.

    A process takes an order before it dies, and only one process can. An order that was withdrawn before is never
    taken.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pending: str | None = None
        self.written: Counter[str] = Counter()
        self.carried_out: Counter[str] = Counter()

    def write(self, name: str, what: str = "kill") -> None:
        staging = self.folder / f".{name}"
        staging.write_text(what)
        staging.rename(self.folder / name)  # so no process reads half of it
        self.pending = name
        self.written[name] += 1

    def taken(self) -> bool:
        """Return whether no order is waiting."""
        if self.pending is not None and not (self.folder / self.pending).exists():
            self.carried_out[self.pending] += 1
            self.pending = None
        return self.pending is None

    def withdraw(self) -> None:
        if self.pending is not None:
            with suppress(FileNotFoundError):
                (self.folder / self.pending).unlink()
                self.pending = None
            self.taken()

    def held_at(self, name: str) -> int | None:
        """Return the process that is held at a point, or None."""
        held = self.folder / f"{name}.held"
        return int(held.read_text() or 0) or None if held.exists() else None

    def release(self, name: str) -> None:
        """Let the process that is held at a point continue."""
        (self.folder / f"{name}.release").touch()

    def forget(self, name: str) -> None:
        """Remove the files of a held process, so that another one can be held at the point."""
        for what in ("held", "release"):
            (self.folder / f"{name}.{what}").unlink(missing_ok=True)


def runs(pid: int) -> bool:
    """Return whether a process is still running."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def part_from_executor(worker: int) -> None:
    """Let a Spark worker outlive its executor: kill its parent first, which would end it."""
    daemon = psutil.Process(worker).parent()
    assert daemon is not None
    daemon.kill()


Row = tuple[str, str, int]

#: sink -> the columns by which its rows are counted -> their positions in an input row
SINKS = {"keys": {"key": 0}, "groups": {"group": 1}, "pairs": {"key": 0, "group": 1}}
#: store -> the columns of its keys, likewise
STORES = {"by-key": SINKS["keys"], "by-group": SINKS["groups"], "by-pair": SINKS["pairs"]}


def entries(store: str, rows: Iterable[Row]) -> list[tuple]:
    """Return the expected entries of a store after these rows: (key columns..., count, sum), sorted."""
    return counted(STORES[store], rows)


def counted(columns: Mapping[str, int], rows: Iterable[Row]) -> list[tuple]:
    counts, sums = Counter(), Counter()
    for row in rows:
        key = tuple(row[at] for at in columns.values())
        counts[key] += 1
        sums[key] += row[2]
    return sorted((*key, counts[key], sums[key]) for key in counts)


def planned_copies(placed: Any) -> list[Path]:
    """Return the paths of the copies that have a role, of tasks with a history."""
    history, app = placed.journal.history, placed.bridge.app_id
    homes = {f"{app}.{m.executor.id}": placed.state.roles(name) for name, m in placed.state.members.items()}
    tasks = [(home, task) for home, roles in homes.items() for part in roles for task in part]
    return [placed.state_root / home / str(task) for home, task in tasks if task in history]


def check_copies(
    folder: Path,
    history: Mapping[str, Any],
    programs: Sequence[Any],
    truth: Callable[[str], list[tuple]],
    at_the_end: Iterable[Path] = (),
    watermark: int | None = None,
) -> int:
    """Bring every copy to the end. Check that copies of a task are equal, and all tasks together hold the truth.

    `truth`: store -> its sorted rows at the watermark. Copies of dead executors are checked too. Those in `at_the_end`
    must be at the end already. Returns the number of copies.
    """
    from taskplace.spark.messages import History
    from taskplace.spark.state.copy import Copy
    from taskplace.spark.state.store import Store

    raw: dict[TaskId, dict[str, dict[bytes, bytes]]] = {}
    there: dict[str, list[tuple]] = {name: [] for program in programs for name in program.stores}
    found = 0
    wanted = set(at_the_end)
    for path in sorted(data.parent for data in (folder / "state").glob("*/*/*_*/data.mdb")):
        task = TaskId.parse(path.name)
        program = programs[task.subtopology]
        with Copy(path, program.databases) as copy:
            end = history.get(task, History())
            if path in wanted:
                assert copy.position() == end.end, f"{path} has not followed"
                wanted.discard(path)
            copy.bring_to(end, folder / "checkpoint")
            found += 1
            contents = {name: dict(copy.scan(name)) for name in program.databases}
            if task in raw:
                assert contents == raw[task], f"{path} is another copy of {task} than those before it"
                continue
            raw[task] = contents
            for name, schema in program.stores.items():
                for part in Store(schema, copy, watermark).scan():
                    there[name] += (tuple(row.values()) for row in part.to_pylist())
    assert not wanted, "copies are missing"
    for name, rows in there.items():
        assert sorted(rows) == truth(name), f"store {name}"
    return found


def check_each_batch(folder: Path, batches: Sequence[Sequence[Row]], sinks: Sequence[str]) -> None:
    """Check that each batch directory has exactly the keys of its batch, once each, as they were after it."""
    for sink in sinks:
        columns, so_far, truth = SINKS[sink], [], []
        for rows in batches:
            so_far += rows
            touched = {tuple(row[at] for at in columns.values()) for row in rows}
            truth.append([entry for entry in counted(columns, so_far) if entry[:-2] in touched])
        check_batches(folder / sink, (*columns, "n", "total"), truth)


def check_batches(sink: Path, columns: Sequence[str], truth: Sequence[list[tuple]]) -> None:
    """Check that each batch directory has exactly these rows, sorted, and that there is no other directory."""
    for number, expected in enumerate(truth):
        there = sorted(tuple(row[name] for name in columns) for row in rows_in(sink / f"batch_id={number}"))
        assert there == expected, f"sink {sink.name}, batch {number}"
    ids = {int(path.name.split("=")[1]) for path in sink.glob("batch_id=*")}
    assert ids <= set(range(len(truth))), f"sink {sink.name}"


def rows_in(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def check_private(folder: Path) -> None:
    """Check that other users cannot read the checkpoint and the state, except for files that sinks link."""
    for root in (folder / "checkpoint", folder / "state"):
        for path in (root, *root.rglob("*")):
            if path.is_dir():
                assert path.stat().st_mode & 0o777 == 0o700, path
            elif "sinks" not in path.relative_to(root).parts:
                assert path.stat().st_mode & 0o777 == 0o600, path


def check(folder: Path, rows: list[tuple[str, str, int]]) -> None:
    """Check that the newest row of every key in the sinks is right, and that no batch directory has a key twice."""
    for sink in ("keys", "groups"):
        ((name, _),) = SINKS[sink].items()
        newest: dict[str, tuple] = {}
        for path in sorted((folder / sink).glob("batch_id=*"), key=lambda path: int(path.name.split("=")[1])):
            found = {row[name]: (row[name], row["n"], row["total"]) for row in rows_in(path)}
            assert len(found) == len(rows_in(path)), f"a key is twice in {path}"
            newest |= found
        assert sorted(newest.values()) == counted(SINKS[sink], rows), f"sink {sink}"


def topology(folder: Path, *, partitions: int = 6, pairs: bool = False, sink: str = "keys-out"):
    """Return the topology that `Pipeline` runs."""
    from taskplace.spark.processors import Aggregate, count, sum_
    from taskplace.spark.sinks import ParquetSink
    from topology import Topology

    def aggregate(store: str) -> Aggregate:
        by = dict.fromkeys(STORES[store], "string")
        return Aggregate(store, by=by, n=count(), total=sum_("value", "int64"))

    topo = Topology("counts")
    source = topo.source("events", key=["key"], partitions=partitions)
    source.process(aggregate("by-key"), name="keys").sink(sink, target=ParquetSink(folder / "keys"))
    if pairs:
        made = source.process(aggregate("by-pair"), name="pairs")
        made.sink("pairs-out", target=ParquetSink(folder / "pairs"))
    groups = source.repartition(key=["group"], name="by-group", partitions=partitions)
    made = groups.process(aggregate("by-group"), name="groups")
    made.sink("groups-out", target=ParquetSink(folder / "groups"))
    return topo


class Pipeline:
    """Counts and sums by key, repartitions by group, and counts and sums again. It also computes the expected results.

    With `pairs`, it also counts by key and group. Then tasks have two stores, and snapshots two pieces.
    """

    def __init__(
        self, spark, folder: Path, *, partitions: int = 6, pairs: bool = False, reporter=None, **options
    ) -> None:
        self.spark, self.folder, self.partitions, self.pairs = spark, folder, partitions, pairs
        self.rows: list[tuple[str, str, int]] = []
        self.sink = "keys-out"
        self.placed = self.open(reporter=reporter, **options)

    def topology(self):
        return topology(self.folder, partitions=self.partitions, pairs=self.pairs, sink=self.sink)

    def open(self, reporter=None, config=None, **options):
        from taskplace.spark import Placed

        defaults = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0}
        defaults |= {"probing.rebalance.interval.ms": 500, **(config or {})}
        where = {"checkpoint": self.folder / "checkpoint", "state_dir": self.folder / "state"}
        options = {"snapshot_interval": 4, "reporter": reporter, **options}
        return Placed(self.spark, self.topology(), config=defaults, **where, **options)

    def reopen(self, **options) -> None:
        """Restart the driver."""
        self.placed.close()
        self.placed = self.open(**options)

    def data(self, batch: int, rows: int = 600) -> list[tuple[str, str, int]]:
        return data(batch, rows)

    def frame(self, rows):
        return self.spark.createDataFrame(rows, "key string, `group` string, value bigint").coalesce(2)

    def run(self, batch: int, rows: int = 600) -> None:
        data = self.data(batch, rows)
        self.placed.process_batch(self.frame(data), batch)
        self.rows.extend(data)

    def truth(self, store: str) -> list[tuple]:
        """Return the expected rows of a store, sorted."""
        return entries(store, self.rows)

    def check(self) -> None:
        check(self.folder, self.rows)

    def check_state(self) -> None:
        """Check that active copies are right when they are read, and that followers equal them. Closes the stream.

        Call it when all copies have settled.
        """
        placed = self.placed
        for program in placed.programs:
            for name in program.stores:
                found = placed.store(name).to_df().toArrow().to_pylist()
                assert sorted(tuple(row.values()) for row in found) == self.truth(name), f"store {name}, read"
        with placed.rebalancer.lock:
            at_the_end = planned_copies(placed)
        placed.close()
        history, watermark = placed.journal.history, placed.journal.last.watermark
        check_copies(self.folder, history, placed.programs, self.truth, at_the_end, watermark)

    def followers_caught_up(self, on: Collection[str] = ()) -> bool:
        """Return whether the followers on these instances, or on all, are at the end."""
        placed = self.placed
        with placed.rebalancer.lock:
            return all(
                placed.state.members[name].copies.get(task) == placed.journal.history[task].end
                for name, roles in placed.loop.plan.assignment.items()
                if name in placed.state.members and (name in on or not on)
                for task in (*roles.standby, *roles.warmup)
                if task in placed.journal.history
            )

    def settle(self) -> None:
        wait_until(self.followers_caught_up, "all followers have caught up")
