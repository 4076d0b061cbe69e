"""Declares what the driver needs from a cluster: the executors, and jobs whose tasks are pinned to them.

`taskplace.spark.bridge.Bridge` implements `Cluster` on Spark. This module imports no Spark, so tests can pass a
stand-in to `Placed` and run whole batches in one process. The protocol has the contract of each method; `Bridge` says
only how it is kept on Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

DECOMMISSION_POLLS = 10
"""Only every tenth poll asks whether Spark decommissions executors, because that takes more calls than who is alive."""


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """A registered executor: its id, its host as Spark names it, and its number of cores."""

    id: str
    host: str
    cores: int

    @property
    def instance(self) -> str:
        """The executor's name as an instance."""
        return f"executor-{self.id}"

    @property
    def location(self) -> str:
        """The preferred location that pins a partition to it."""
        return f"executor_{self.host}_{self.id}"


@dataclass(frozen=True)
class ArrowInput:
    """A data frame's rows in a shuffle whose map side has run. Pinned tasks read ranges of it, any number of times.

    - `rows`: the shuffle, as the cluster reads it
    - `schema`: the serialised Arrow schema of the rows; one column has the partition of each row
    - `order`: all partitions, by position in the shuffle
    - `sizes`: by partition, the bytes of its rows after decoding, as an estimate; 0: no rows
    """

    rows: Any
    schema: bytes
    order: tuple[int, ...]
    sizes: tuple[int, ...]


class JobLostError(Exception):
    """A job was cancelled because executors that its partitions were pinned to are lost; `lost` has their ids."""

    def __init__(self, lost: frozenset[str]) -> None:
        super().__init__(f"executors were lost: {', '.join(sorted(lost))}")
        self.lost = lost


class Job(Protocol):
    """A job that was started.

    - `done`: set when the job has ended, also after an error or a cancellation
    """

    done: threading.Event

    def result(self) -> list[Any]:
        """Return the elements of an ended job. Errors: the job's own."""

    def cancel(self) -> None:
        """Cancel the job, and wait for nothing."""


class SentValue(Protocol):
    """A value that executors receive with the first job that uses it, and keep."""

    def to(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with this value as its first argument."""


class Cluster(Protocol):
    """The executors of one session, and the jobs that run on them.

    - `app_id`: the application's id
    - `local`: whether driver and executor are the same process; then no task is pinned
    """

    app_id: str
    local: bool

    @property
    def spark(self) -> SparkSession:
        """The session. Errors: `InputError` once it is stopped."""

    # -- executors

    def executors(self) -> list[Executor]:
        """Return the usable executors that have registered with their number of cores, sorted by id. Short calls."""

    def alive(self) -> frozenset[str]:
        """Return the ids of the executors that the scheduler knows now. One short call, for polling."""

    def usable(self) -> frozenset[str]:
        """Return the ids of the executors that may get tasks: those that are alive and not being decommissioned."""

    def wait_for_executors(self, seconds: float) -> list[Executor]:
        """Wait for the expected number of executors, at most `seconds`. Return the executors that have registered."""

    # -- jobs

    def query_id(self) -> str | None:
        """Return the id of the streaming query on whose thread this is called; None outside a query."""

    def query_offsets(self) -> Path | None:
        """Return the directory in which this query keeps its offsets; None outside a query, or if it is not local."""

    def query_stopped(self, error: BaseException) -> bool:
        """Return whether `error` ended a batch because the query was stopped. Called on the query's thread.

        Spark cancels the batch of a query that is stopped. A query whose batch fails is not stopped until its batch
        function has returned. PySpark answers Ctrl-C by cancelling all jobs, and the query is stopped after that.
        """

    def arrow_input(self, df: DataFrame, order: Sequence[int], partition_id: str) -> ArrowInput:
        """Shuffle `df`'s rows by partition, and run the map side, so that jobs only read.

        The column `partition_id` (0 .. n-1) has the partition of a row. `order` has all partitions, by position in the
        shuffle.
        """

    def pinned(
        self,
        elements: Sequence[bytes],
        locations: Sequence[str | None],
        function: Callable[[Iterator[Any]], Iterable[Any]],
        arrow: ArrowInput | None = None,
        ranges: Sequence[tuple[int, int]] = (),
    ) -> Any:
        """Return a job, not started, with one partition per element, pinned to its location, mapped by `function`.

        A location is only a preference; None leaves the choice to the cluster. `function` gets the elements; with
        `arrow`, pairs of an element and the Arrow batches of its range of the shuffle, which can be read once. `ranges`
        has one range per element: positions from, to (exclusive).
        """

    def run(
        self,
        pinned: Any,
        partitions: Sequence[int],
        *,
        tag: str,
        watch: frozenset[str] = frozenset(),
        pool: str | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Run the `pinned` job over `partitions` and return its elements. The job's tag begins with `tag`.

        - `watch`: the ids of executors whose loss ends the job
        - `pool`: the scheduler pool; None: the default one
        - `on_lost`: called once, first of all, when one of `watch` is lost; it asks the job's tasks to end

        Errors: `JobLostError` if an executor in `watch` is lost or is being decommissioned before the job ends, or when
        it has failed. Before it is raised, the call waits a few seconds at most for the job's tasks to end; the job is
        cancelled if they do not end by themselves. An
        exception of a task is raised as the cluster reports it; `CheckpointError`, `Fenced` and `DiskFull` have their
        type.
        """

    def start(
        self,
        pinned: Any,
        partitions: Sequence[int],
        *,
        tag: str,
        pool: str | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> Job:
        """Start the `pinned` job over `partitions`, and return at once. The job's tag begins with `tag`.

        `on_done` is called in any thread after the job has ended. Nobody watches the executors.
        """

    def keep(self, name: str, value: object) -> SentValue:
        """Send a value to executors, unless the value last sent under this name is the same object.

        Jobs with `keep(name, value).to(function)` do not send it again, however large it is.
        """

    def register_source(self, spark: SparkSession, name: str, source: Callable[[], type[DataSource]]) -> None:
        """Make a data source known to a session, once. The driver plans it; `source` returns its class."""

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Return a daemon thread, not yet started, that may run jobs in the calling thread's session."""

    def close(self) -> None:
        """Remove the values that were sent to executors. The cluster can still be used."""
