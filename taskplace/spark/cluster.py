"""What the driver needs of a cluster: its executors, and jobs whose tasks are pinned to them.

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


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """An executor that is registered: its id, its host as Spark names it, and its cores."""

    id: str
    host: str
    cores: int

    @property
    def instance(self) -> str:
        """The name it has as an instance."""
        return f"executor-{self.id}"

    @property
    def location(self) -> str:
        """The preferred location that pins a partition to it."""
        return f"executor_{self.host}_{self.id}"


@dataclass(frozen=True)
class ArrowInput:
    """A data frame's rows on their way to pinned tasks: a Java RDD with one list of Arrow batches per partition.

    `sizes` are the bytes of each partition within the shuffle; 0: it has no rows.
    """

    rdd: Any
    schema: bytes
    sizes: tuple[int, ...]


class JobLostError(Exception):
    """A job was cancelled because executors that its partitions were pinned to have gone; `lost` names them."""

    def __init__(self, lost: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(lost)))
        self.lost = lost


class SentValue(Protocol):
    """A value that executors have, or get with the first job that uses it."""

    def to(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with this value as its first argument."""


class Cluster(Protocol):
    """The executors of one session, and the jobs that run on them. `Bridge` documents each method.

    `app_id`: the application's id; `local`: whether driver and executor are one process, so that nothing is pinned.
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
        """Return the ids of the executors that the scheduler has now."""

    def usable(self) -> frozenset[str]:
        """Return the ids of those that may get tasks: not the ones that are being decommissioned."""

    def wait_for_executors(self, seconds: float) -> list[Executor]:
        """Return the executors once the expected number has come, or those that are there after `seconds`."""

    # -- jobs

    def query_id(self) -> str | None:
        """Return the id of the streaming query on whose thread this is called."""

    def arrow_input(self, df: DataFrame, partitions: int, partition_id: str) -> ArrowInput:
        """Return `df`'s rows by partition, which the column `partition_id` gives. Runs the map side of a shuffle."""

    def pinned(
        self,
        elements: Sequence[bytes],
        locations: Sequence[str | None],
        function: Callable[[Iterator[Any]], Iterable[Any]],
        arrow: ArrowInput | None = None,
    ) -> Any:
        """Return a job with one partition per element, pinned to its location, mapped by `function`."""

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
        """Run a job over `partitions` and return its elements. Errors: `JobLostError` when one in `watch` is lost."""

    def keep(self, name: str, value: object) -> SentValue:
        """Send a value to executors, unless the one that was sent under this name is the same object."""

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Return a daemon thread, not started, that may run jobs in the session of the thread that calls this."""

    def close(self) -> None:
        """Remove what was sent to executors."""
