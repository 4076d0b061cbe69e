"""Publishing: a committed batch's staged output goes to the targets of the topology's sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.driver import older
from taskplace.spark.driver.staging import declared, kept
from taskplace.spark.messages import Manifest, StagedFile
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.state.files import open_sealed
from topology import BuiltTopology

log = logging.getLogger(__name__)


def check_targets(built: BuiltTopology) -> None:
    """Refuse what is no target, and a target that two sinks have. O(sinks). Errors: `InputError`."""
    given: dict[object, str] = {}
    for node in (node for sub in built.subtopologies for node in sub.sinks):
        name, target = node.name, node.target
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


class Publisher:
    """Gives each sink's target what the winning attempts staged, as often as it takes: they are idempotent by batch."""

    def __init__(self, checkpoint: Path, built: BuiltTopology) -> None:
        """Errors: `InputError` for what is no schema; as of `check_targets`."""
        self._checkpoint = checkpoint
        self._declared = declared(built)
        self._targets = {node.name: node.target for sub in built.subtopologies for node in sub.sinks}
        check_targets(built)

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
        topology does not have any more; what a target raises, with a note that the batch stays to be published.
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
                open_sealed(self._checkpoint / file.file, file.size, file.checksum).close()
            before_each()
            files = self._files(name, target, staged, manifest)
            try:
                target.publish(spark, manifest.batch, [self._checkpoint / file.file for file in files])
            except Exception as error:
                pending = (
                    f"{self._checkpoint}: batch {manifest.batch} is committed, and stays to be published until the "
                    f"target of sink {name!r} takes it; nothing is lost: repair the target, and start again"
                )
                log.error("%s (%s: %s)", pending, type(error).__name__, error)
                error.add_note(pending)
                raise

    def _files(
        self, name: str, target: Any, staged: Sequence[StagedFile], manifest: Manifest
    ) -> Sequence[StagedFile]:
        """Return what a target gets: the staged files, or their rows under the schema that is declared now.

        Errors: `CheckpointError` for those of an older checkpoint that do not agree (`taskplace.spark.driver.older`).
        """
        before, declared = kept(manifest.identity, name), self._declared.get(name)
        if not staged or (before is not None and (declared is None or declared.columns == before.columns)):
            return staged
        if isinstance(target, ParquetSink) and target.holds(manifest.batch):
            return staged
        return older.agreeing(self._checkpoint, name, manifest.batch, staged, declared)
