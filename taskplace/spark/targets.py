"""What the runtime asks of a sink's target.

**Idea.** A target is any object with `publish(spark, batch_id, files)`. A target that has more to say derives from
`SinkTarget`, which declares every member that the runtime reads, with its default. The runtime asks `of(target)`, and
so names no class: a new directory sink gets the check of overlaps by its `directory`.

A target that has to know more of the commit than the batch's number derives from `CommitTarget`, the base of
`SinkTarget`. Instead of `publish` it has `publish_commit`, which gets a `Commit`.

Any other member counts only if a target derives from either.

No Arrow and no Spark: a YAML file's topology is read without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from taskplace.spark.worker.program import RowCheck


class Target(Protocol):
    """The method that every target has."""

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Make the rows of `files` (Parquet) the output of `batch_id`. A repeated call has no further effect."""
        ...


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The output of a committed batch for one sink.

    - `checkpoint_id`, `sink`: identify the output; `batch_id` counts its batches
    - `files`: the staged rows, as Parquet files, in the order of their tasks; empty for a batch without rows
    - `check_epoch`: raises `Fenced` if another driver has taken over the checkpoint
    - `nonce`: of the batch's manifest, drawn by the driver that has committed it; "" if an older version has
    """

    spark: SparkSession
    checkpoint_id: str
    sink: str
    batch_id: int
    files: Sequence[Path]
    check_epoch: Callable[[], None]
    read_checksum: Callable[[], str]
    nonce: str = ""

    @cached_property
    def checksum(self) -> str:
        """The checksum of the batch's manifest. A batch that is run again after a restored backup has another one."""
        return self.read_checksum()


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output of a checkpoint for one sink, as a target gets it before the first commit of a driver.

    - `checkpoint_id`, `sink`: identify the output
    - `kept`: what `kept_output` has returned for the last manifest; empty if it has nothing
    - `repeated`: the committed batch that is published again first; None if there is none, or if it has no rows
    - `check_epoch`: raises `Fenced` if another driver has taken over the checkpoint
    """

    checkpoint_id: str
    sink: str
    kept: Mapping[str, Any] = field(default_factory=dict)
    repeated: int | None = None
    check_epoch: Callable[[], None] = lambda: None


class CommitTarget(ABC):
    """A target with all members that the runtime reads; a subclass writes `publish_commit`, and what else it needs.

    In this order: `reserved`, `row_check` and `directory` are read when the stream is built. `probe` and `check` are
    called before the first batch, and `check_output` before the driver takes the checkpoint over. Then come `bind` and
    `open_output`. `kept_output` is called for each manifest, and `publish_commit` after it. `close` comes last.
    """

    #: Names, in lower case, of columns that rows may not have, in whatever case: the target adds them itself.
    reserved: Collection[str] = ()

    #: Refuses rows before they are committed; None: every row that fits the sink's schema can be published. It is sent
    #: to executors, so it can be pickled.
    row_check: RowCheck | None = None

    @property
    def directory(self) -> Path | None:
        """The directory that it writes to; no source, other sink, checkpoint or state may overlap it. None: no one."""
        return None

    def probe(self) -> None:  # noqa: B027 - nothing to try
        """Try whether it can write; leave nothing behind. Errors: any; the stream does not start."""

    def check(self, checkpoint_id: str) -> None:  # noqa: B027 - every checkpoint is taken
        """Refuse the output of a checkpoint that it may not take; change nothing. Errors: any."""

    def bind(self, checkpoint_id: str) -> None:  # noqa: B027 - nothing to remember
        """Belong to this checkpoint from now on, or refuse. May be called again. Errors: any."""

    def check_output(self, output: Output) -> None:  # noqa: B027 - every output is taken
        """Refuse to go on with an output that is not that of the last manifest; change nothing. Errors: any."""

    def open_output(self, output: Output) -> None:  # noqa: B027 - nothing to open
        """Make ready to publish, so that what fails does so before the first commit. Errors: any."""

    def kept_output(self) -> Mapping[str, Any]:
        """Return what the next manifest keeps of the output, for `check_output`: any JSON."""
        return {}

    def close(self) -> None:  # noqa: B027 - nothing is open
        """Give up what is open: when the stream ends, and after an error. `publish_commit` may be called again."""

    @abstractmethod
    def publish_commit(self, commit: Commit) -> None:
        """Make the rows of a commit the output of its batch. Idempotent, as `SinkTarget.publish`."""


class SinkTarget(CommitTarget):
    """A target that needs no more than the batch's id and files; a subclass writes `publish`."""

    def publish_commit(self, commit: Commit) -> None:
        """Call `publish` with the batch's id and files."""
        self.publish(commit.spark, commit.batch_id, commit.files)

    @abstractmethod
    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Make the rows of `files` (Parquet) the output of `batch_id`.

        Idempotent by batch id: after a crash it is called again with the same id and the same rows. `files` is empty
        for a batch without rows. Errors: any; the batch stays committed, and is published at the next start.
        """


class _Plain(SinkTarget):
    """A target that does not derive from `SinkTarget`."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        self._target.publish(spark, batch_id, files)


def is_target(given: object) -> bool:
    """Return whether batches can be published to an object.

    >>> is_target("a topic")
    False
    """
    return isinstance(given, CommitTarget) or callable(getattr(given, "publish", None))


def of(target: Any) -> CommitTarget:
    """Return a node's target with all members; what is no target, such as None or a topic's name, has the defaults.

    >>> of("a topic").directory is None, of(None).reserved
    (True, ())
    """
    return target if isinstance(target, CommitTarget) else _Plain(target)
