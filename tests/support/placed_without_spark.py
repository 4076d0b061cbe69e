"""A whole `Placed` in this process. Its bridge has no Spark behind it; everything else is real.

Executors are names, and tasks run where they are pinned, one after the other. Each executor has its own state
directory, as on its own disk. A later executor may take over the directory of a dead one. The replicator's thread never
runs; tests call its rounds. Jobs that are started, such as follow jobs, have ended before `start` returns.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from taskplace.spark import faults
from taskplace.spark.cluster import ArrowInput, Executor, JobLostError
from taskplace.spark.compile import programs
from taskplace.spark.compile.partition_columns import partition_columns
from taskplace.spark.driver import bins as task_costs
from taskplace.spark.driver import followers, operations, rebalancer
from taskplace.spark.driver.read_topics import InputLag
from taskplace.spark.messages import Owner
from taskplace.spark.placed import Placed
from taskplace.spark.worker import identity
from taskplace.spark.worker.external import PARTITION, TAG
from taskplace.spark.worker.hashing import partition_of
from taskplace.spark.worker.program import Program
from tests.support.ended_jobs import Ended, NeverRuns
from topology import Topology


class Died(BaseException):
    """The executor that runs this dies here: no error handler must run."""


@dataclass(frozen=True)
class Source:
    """A source of the topology, and its rows in one batch. `partitions`: of its topic."""

    tag: int
    key: tuple[str, ...]
    rows: pa.Table
    partitions: int
    column: str = ""


class Frame:
    """Replaces the data frame of a batch, or the part of it that one subtopology reads."""

    sparkSession = None  # noqa: N815 - as data frames call it

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        self.columns = [TAG, PARTITION, *sources]

    def part(self, program: Program) -> Frame:
        return Frame({topic: self.sources[topic] for topic in program.external})

    def count(self) -> int:
        return sum(source.rows.num_rows for source in self.sources.values())

    def shuffled(self, order: Sequence[int]) -> ArrowInput:
        """Return the rows as Spark would deliver them: untagged from a single source, tagged from several."""
        parts: list[list[pa.Table]] = [[] for _ in order]
        for topic, source in self.sources.items():
            keys = [] if source.column else [source.rows[name] for name in source.key]
            at = np.arange(source.rows.num_rows) % source.partitions  # without a key: one after the other
            if source.column:
                at = source.rows[source.column].to_numpy()
            elif keys and source.rows.num_rows:
                at = partition_of(keys, source.partitions)
            for number, part in enumerate(parts):
                part.append(self._tagged(topic, source.rows.filter(pa.array(at == number))))
        tables = [pa.concat_tables(part).combine_chunks() for part in parts]
        numbers = [pa.array([number] * len(table), pa.int32()) for number, table in enumerate(tables)]
        tables = [table.append_column(PARTITION, own) for table, own in zip(tables, numbers, strict=True)]
        return ArrowInput(
            [[b.serialize().to_pybytes() for b in tables[p].to_batches() if b.num_rows] for p in order],
            tables[0].schema.serialize().to_pybytes(),
            tuple(order),
            tuple(table.nbytes for table in tables),
        )

    def _tagged(self, topic: str, rows: pa.Table) -> pa.Table:
        if len(self.sources) == 1:
            return rows
        columns = {TAG: pa.array([self.sources[topic].tag] * len(rows), pa.int32())}
        for other, source in self.sources.items():
            columns[other] = pa.nulls(len(rows), pa.struct(list(source.rows.schema)))
        return pa.table({**columns, topic: rows.to_struct_array()})


@dataclass
class Job:
    """A pinned job that has not started."""

    elements: Sequence[bytes]
    locations: Sequence[str | None]
    function: Callable[[Iterable[Any]], Iterable[str]]
    arrow: ArrowInput | None
    ranges: Sequence[tuple[int, int]]


class World:
    """The cluster and everything that outlives drivers: the executors, their disks, the checkpoint, the sinks.

    It is the bridge (`taskplace.spark.cluster.Cluster`) of the drivers that it opens.

    - `there`: id -> living executor; `come`, `leave`, `lose` and `restart` change it
    - `leaving`: the living executors that get no more tasks
    - `at`: called with each point that is passed (`taskplace.spark.faults`). It may raise exceptions, such as `Died`
      after it has lost the running executor
    - `running`: the executor whose task is running, or None
    - `query`: the id of Spark's query; `offsets`: the directory of its offsets, None: unknown
    - `adopted`: how often an executor took over the directory of a dead one
    - `threads`: the threads that drivers have requested for follow jobs
    """

    local = False

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, executors: int = 1) -> None:
        self.folder, self.query, self.app_id = folder, "query", "app-1"
        self.leaving: set[str] = set()
        self.there: dict[str, Executor] = {}
        self.running: str | None = None
        self.stopped = False
        self.offsets: Path | None = None
        self._one_task = threading.RLock()  # `running` is one for all threads
        self.at: Callable[[str], None] = lambda point: None
        self.adopted = 0
        self.threads: list[NeverRuns] = []
        self._number, self._apps = 0, 1
        self._me = identity.owner_of(psutil.Process())
        self._homes: dict[tuple[str, Path], Path] = {}
        self._really_home = identity.home.__wrapped__
        reads = SimpleNamespace(parquet=self._read)
        self.spark = SimpleNamespace(read=reads, createDataFrame=lambda rows, schema: pa.table({}))
        self.come(executors)
        self._patch(monkeypatch)

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(programs, "stage_input", lambda frame, program: frame.part(program))
        monkeypatch.setattr(identity, "executor", lambda: (self.running, self._owner(self.running)))
        monkeypatch.setattr(identity, "home", self._home)
        monkeypatch.setattr(faults, "point", lambda name: self.at(name))
        monkeypatch.setattr(operations, "new_thread", NeverRuns)
        monkeypatch.setattr(InputLag, "begin", lambda lag: None)
        monkeypatch.setattr(rebalancer, "PAUSE_SECONDS", 0.0)
        monkeypatch.setattr(task_costs, "SECONDS_WORTH_A_BIN", 1e9)  # however slow this machine is
        monkeypatch.setattr(followers, "JOB_SECONDS", None)  # however fast this machine is
        monkeypatch.setattr(os, "fsync", lambda handle: None)  # no host crashes here

    # -- executors

    def come(self, number: int = 1) -> list[str]:
        """Add executors, and return their ids."""
        ids = [str(self._number + 1 + i) for i in range(number)]
        self._number += number
        self.there |= {id: Executor(id, f"host-{id}", 1) for id in ids}
        return ids

    def leave(self, id: str) -> None:
        """Decommission an executor."""
        self.leaving.add(id)

    def lose(self, id: str) -> None:
        """End an executor and its workers. Its directory remains, and another executor may take it over."""
        del self.there[id]
        self.leaving.discard(id)
        for (executor, _), home in list(self._homes.items()):
            if executor == id:
                for worker in (home / identity.WORKERS).glob("*"):
                    worker.unlink()
        self._homes = {key: home for key, home in self._homes.items() if key[0] != id}

    def restart(self, number: int) -> None:
        """Continue as another application, with this many new executors."""
        for id in list(self.there):
            self.lose(id)
        self._apps += 1
        self.app_id = f"app-{self._apps}"
        self.come(number)

    def _owner(self, id: str | None) -> Owner:
        # No process is that old. A directory is in use while a worker (this process) is recorded in it.
        return replace(self._me, started=-float(id or 0) - 1)

    def _home(self, root: Path, app: str) -> Path:
        key = (self.running or "", root)
        if key not in self._homes:
            before = len(list(root.glob("*.*"))) if root.exists() else 0
            self._homes[key] = self._really_home(root, app)
            self.adopted += len(list(root.glob("*.*"))) == before
        return self._homes[key]

    # -- what `Placed` asks of its bridge

    def query_id(self) -> str:
        return self.query

    def query_offsets(self) -> Path | None:
        return self.offsets

    def query_stopped(self, error: BaseException) -> bool:
        return self.stopped

    def alive(self) -> frozenset[str]:
        return frozenset(self.there)

    def usable(self) -> frozenset[str]:
        return self.alive() - self.leaving

    def executors(self) -> list[Executor]:
        return sorted(self.there[id] for id in self.usable())

    def wait_for_executors(self, seconds: float) -> list[Executor]:
        return self.executors()

    def arrow_input(self, frame: Frame, order: Sequence[int], _: str) -> ArrowInput:
        return frame.shuffled(order)

    def pinned(
        self,
        elements: Sequence[bytes],
        locations: Sequence[str | None],
        function: Callable[[Iterable[Any]], Iterable[str]],
        arrow: ArrowInput | None = None,
        ranges: Sequence[tuple[int, int]] = (),
    ) -> Job:
        return Job(elements, locations, function, arrow, ranges)

    def keep(self, name: str, value: object) -> SimpleNamespace:
        return SimpleNamespace(to=lambda function: partial(function, value))

    def register_source(self, spark: Any, name: str, source: Callable[[], type]) -> None:
        """Do nothing: no Spark looks for it."""

    def thread(self, target: Callable[[], None], name: str) -> NeverRuns:
        self.threads.append(NeverRuns(target=target, name=name))
        return self.threads[-1]

    def close(self) -> None:
        pass

    def run(
        self,
        job: Job,
        partitions: Sequence[int],
        *,
        tag: str,
        watch: frozenset[str] = frozenset(),
        pool: str | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> list[str]:
        found: list[str] = []
        for i in partitions:
            answer = None
            while answer is None and watch <= self.usable():  # without a watch it is tried again
                where = (job.locations[i] or "").rpartition("_")[2]
                answer = self._task(job, i, where if where in self.usable() else min(self.usable()))
            found += answer or ()
        if lost := watch - self.usable():
            if on_lost is not None:
                on_lost()
            raise JobLostError(lost)
        return found

    def start(
        self,
        job: Job,
        partitions: Sequence[int],
        *,
        tag: str,
        pool: str | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> Ended:
        """Run a job to its end, on the executors that it is pinned to and no others."""
        pinned = frozenset((job.locations[i] or "").rpartition("_")[2] for i in partitions)
        try:
            ended = Ended(self.run(job, partitions, tag=tag, watch=pinned))
        except Exception as error:
            ended = Ended([], error)
        if on_done is not None:
            on_done()
        return ended

    def _task(self, job: Job, i: int, where: str) -> list[str] | None:
        """Run a task on an executor. Return None if the executor has died."""
        with self._one_task:
            before, self.running = self.running, where
            try:
                element: Any = job.elements[i]
                if job.arrow is not None:
                    read = job.arrow.rows[slice(*job.ranges[i])]
                    element = element, [batch for part in read for batch in part]
                return list(job.function([element]))
            except Died:
                return None
            finally:
                self.running = before

    # -- drivers

    def open(self, topology: Topology, *, checkpoint: str = "checkpoint", **options: Any) -> Placed:
        """Create a driver. `options`: the options of `Placed`."""
        config = {"num.standby.replicas": 0, **options.pop("config", {})}
        where = {"checkpoint": self.folder / checkpoint, "state_dir": self.folder / "state"}
        return Placed(self.spark, topology, config=config, bridge=self, **where, **options)  # type: ignore[arg-type]

    @staticmethod
    def frame(placed: Placed, topics: Mapping[str, pa.Table]) -> Any:
        keys = {node.topic: node.key for node in placed.built.nodes if node.kind == "source"}
        tags = programs.external_topics(placed.built)
        counts, columns = placed.built.partitions, partition_columns(placed.built)
        return Frame(
            {t: Source(n, keys[t], topics[t], counts[t] or 1, columns.get(t, "")) for t, n in tags.items()}
        )

    def batch(self, placed: Placed, number: int, /, **topics: pa.Table) -> None:
        """Run a batch with the rows of each source."""
        placed.process_batch(self.frame(placed, topics), number)

    @staticmethod
    def welcome(placed: Placed) -> None:
        """Make members of all executors, as before a first batch."""
        placed._runner.followers.welcome(placed._runner.replicator.make)

    @staticmethod
    def follow(placed: Placed, rounds: int = 20) -> int:
        """Run rounds of follow jobs while there is work, and return their number. Errors: those of failed jobs."""
        runner = placed._runner
        for made in range(rounds):
            jobs = runner.replicator.make(runner.followers.jobs())
            if not any(job.progress for job in jobs):
                return made
        return rounds

    # -- what has come of it

    @staticmethod
    def _read(*files: str) -> pa.Table:
        return pa.concat_tables([pq.ParquetFile(file).read() for file in files])

    def stored(self, placed: Placed, store: str) -> list[tuple]:
        """Return a store's rows, read from outside the stream, sorted."""
        found: Any = placed.store(store).to_df()
        return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)

    def sent(self, sink: str) -> dict[int, list[tuple]]:
        """Return a sink's sorted rows by batch."""
        found = {}
        for path in (self.folder / sink).glob("batch_id=*"):
            rows = self._read(*map(str, path.glob("*.parquet"))).to_pylist()
            found[int(path.name.partition("=")[2])] = sorted((tuple(row.values()) for row in rows), key=repr)
        return found
