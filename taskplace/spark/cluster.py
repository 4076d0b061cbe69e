"""Declares what the driver needs from a cluster: the executors, and jobs whose tasks are pinned to them.

`taskplace.spark.bridge.Bridge` implements `Cluster` on Spark. This module imports no Spark, so tests can pass a
stand-in to `Placed` and run whole batches in one process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
        super().__init__(", ".join(sorted(lost)))
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
    """The executors of one session, and the jobs that run on them. `Bridge` documents each method.

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
        """Return the executors that may get tasks, sorted by id."""

    def alive(self) -> frozenset[str]:
        """Return the ids of the executors that the scheduler knows now."""

    def usable(self) -> frozenset[str]:
        """Return the ids of the executors that may get tasks: those that are not being decommissioned."""

    def wait_for_executors(self, seconds: float) -> list[Executor]:
        """Wait for the expected number of executors, at most `seconds`. Return the executors that have registered."""

    # -- jobs

    def query_id(self) -> str | None:
        """Return the id of the streaming query on whose thread this is called."""

    def arrow_input(self, df: DataFrame, order: Sequence[int], partition_id: str) -> ArrowInput:
        """Shuffle `df`'s rows by the column `partition_id`; `order` has all partitions. Runs the map side."""

    def pinned(
        self,
        elements: Sequence[bytes],
        locations: Sequence[str | None],
        function: Callable[[Iterator[Any]], Iterable[Any]],
        arrow: ArrowInput | None = None,
        ranges: Sequence[tuple[int, int]] = (),
    ) -> Any:
        """Return a job with one partition per element, pinned to its location, mapped by `function`.

        With `arrow`, each element comes with the rows of its range of the shuffle: positions from, to (exclusive).
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
        """Run a job over `partitions`; return its elements. Errors: `JobLostError` if one in `watch` is lost."""

    def start(
        self,
        pinned: Any,
        partitions: Sequence[int],
        *,
        tag: str,
        pool: str | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> Job:
        """Start a job over `partitions`, and return at once. `on_done` is called in any thread after its end."""

    def keep(self, name: str, value: object) -> SentValue:
        """Send a value to executors, unless the value last sent under this name is the same object."""

    def register_source(self, spark: SparkSession, name: str, source: Callable[[], type[DataSource]]) -> None:
        """Make a data source known to a session, once. The driver plans it; `source` returns its class."""

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Return a daemon thread, not yet started, that may run jobs in the calling thread's session."""

    def close(self) -> None:
        """Remove the values that were sent to executors."""
