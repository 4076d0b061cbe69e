"""Publishing: a committed batch's staged output goes to the targets of the topology's sinks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.driver.journal import Manifest
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.state.files import read_sealed
from topology import BuiltTopology


class Publisher:
    """Gives each sink's target what the winning attempts staged, as often as it takes: they are idempotent by batch."""

    def __init__(self, checkpoint: Path, built: BuiltTopology) -> None:
        """Errors: `InputError` for what is no target, and for one that two sinks have."""
        self._checkpoint = checkpoint
        self._targets = {node.name: node.target for sub in built.subtopologies for node in sub.sinks}
        given: dict[object, str] = {}
        for name, target in self._targets.items():
            if target is None:
                continue
            if not callable(getattr(target, "publish", None)):
                raise InputError(
                    f"sinks.{name}.target",
                    found=target,
                    expected="an object with publish(spark, batch_id, files), such as a ParquetSink",
                )
            where = target.path.resolve() if isinstance(target, ParquetSink) else id(target)
            if where in given:
                raise InputError(
                    f"sinks.{name}.target",
                    found=f"{where if isinstance(where, Path) else target}, as sink {given[where]!r} has it",
                    expected="one of its own: by batch id, the rows of one sink would pass for the other's",
                )
            given[where] = name

    def probe(self) -> None:
        """Have the targets try whether they can write at all. Errors: what one says that cannot."""
        for target in self._targets.values():
            if hasattr(target, "probe"):
                target.probe()

    def check(self, checkpoint_id: str) -> None:
        """Ask the targets whether they take a checkpoint's output. Errors: what one says that holds another's."""
        for target in self._targets.values():
            if hasattr(target, "check"):
                target.check(checkpoint_id)

    def bind(self, checkpoint_id: str) -> None:
        """Tell the targets whose output they are to take. Errors: as `check`."""
        for target in self._targets.values():
            if hasattr(target, "bind"):
                target.bind(checkpoint_id)

    def publish(
        self, spark: SparkSession, manifest: Manifest, before_each: Callable[[], None] = lambda: None
    ) -> None:
        """Publish a batch; `before_each` may stop it at any target by an error.

        Errors: `CheckpointError` for a staged file that is missing or damaged, and for output of a sink that the
        topology does not have any more.
        """
        if gone := sorted(set(manifest.sinks) - set(self._targets)):
            raise CheckpointError(
                f"{self._checkpoint}: batch {manifest.batch} is committed and has output for sink {gone[0]!r} that may "
                "not be published yet, and the topology has no such sink; start it once more as it was"
            )
        for name, target in self._targets.items():
            if target is None:
                continue
            staged = manifest.sinks.get(name, ())
            for file in staged:
                read_sealed(self._checkpoint / file.file, file.size, file.checksum)
            before_each()
            target.publish(spark, manifest.batch, [self._checkpoint / file.file for file in staged])
