"""What the runtime asks of a sink's target.

**Idea.** A target is any object with `publish(spark, batch_id, files)`. A target that has more to say derives from
`SinkTarget`, which declares every member that the runtime reads, with its default. The runtime asks `of(target)`, and
so names no class: a new directory sink gets the check of overlaps by its `directory`.

Properties: a target that does not derive from `SinkTarget` may have `probe`, `check`, `bind` and `reserved` as well.
`directory` and `holds` count only if it does: such an object may use these names for something else.

No Arrow and no Spark: a YAML file's topology is read without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Target(Protocol):
    """The method that every target has."""

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Make the rows of `files` (Parquet) the output of `batch_id`. A repeated call has no further effect."""
        ...


class SinkTarget(ABC):
    """A target with all members that the runtime reads; a subclass writes `publish`, and the others that it needs.

    In this order: `reserved` and `directory` are read when the stream is built. `probe` and `check` are called before
    the first batch, `bind` when the driver takes the checkpoint over, and `publish` after the commit of each batch.
    """

    #: Names, in lower case, of columns that rows may not have, in whatever case: the target adds them itself.
    reserved: Collection[str] = ()

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

    def holds(self, batch_id: int) -> bool:
        """Return whether it has this batch already, so that `publish` would write nothing."""
        return False

    @abstractmethod
    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        """Make the rows of `files` (Parquet) the output of `batch_id`.

        Idempotent by batch id: after a crash it is called again with the same id and the same rows. `files` is empty
        for a batch without rows. Errors: any; the batch stays committed, and is published at the next start.
        """


class _Plain(SinkTarget):
    """A target that does not derive from `SinkTarget`, with the members that it has."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.reserved = getattr(target, "reserved", ())

    def probe(self) -> None:
        if hasattr(self._target, "probe"):
            self._target.probe()

    def check(self, checkpoint_id: str) -> None:
        if hasattr(self._target, "check"):
            self._target.check(checkpoint_id)

    def bind(self, checkpoint_id: str) -> None:
        if hasattr(self._target, "bind"):
            self._target.bind(checkpoint_id)

    def publish(self, spark: SparkSession, batch_id: int, files: Sequence[Path]) -> None:
        self._target.publish(spark, batch_id, files)


#: The methods that the runtime calls on a target that has them, with their arguments.
_CALLED = {
    "publish": ("spark", "batch_id", "files"),
    "probe": (),
    "check": ("checkpoint_id",),
    "bind": ("checkpoint_id",),
}


def members(target: Any) -> dict[str, Sequence[str]]:
    """Return the methods that the runtime will call on a target, with their arguments.

    >>> class Printer:
    ...     def publish(self, spark, batch_id, files): ...
    >>> members(Printer())
    {'publish': ('spark', 'batch_id', 'files')}
    """
    called = _CALLED | ({"holds": ("batch_id",)} if isinstance(target, SinkTarget) else {})
    return {name: arguments for name, arguments in called.items() if hasattr(target, name)}


def of(target: Any) -> SinkTarget:
    """Return a node's target with all members; what is no target, such as None or a topic's name, has the defaults.

    >>> of("a topic").directory is None, of(None).reserved
    (True, ())
    """
    return target if isinstance(target, SinkTarget) else _Plain(target)
