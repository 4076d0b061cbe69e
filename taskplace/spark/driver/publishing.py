"""Publishes the staged output of a committed batch to the targets of the topology's sinks."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.model.callables import check_function
from taskplace.spark import targets
from taskplace.spark.checkpoint.files import open_sealed
from taskplace.spark.checkpoint.journal import checksum
from taskplace.spark.driver.logged_errors import log_failure
from taskplace.spark.messages import Manifest
from taskplace.spark.worker.guard import shown_error
from topology import BuiltTopology

log = logging.getLogger(__name__)

#: The key of the identity with what targets keep of their output.
OUTPUTS = "outputs"


def check_targets(built: BuiltTopology) -> None:
    """Refuse an object that is not a target, a method with other parameters, and one target for two sinks. O(sinks).

    Errors: `InputError`.
    """
    given: dict[object, str] = {}
    for node in (node for sub in built.subtopologies for node in sub.sinks):
        name, target, path = node.name, node.target, f"sinks.{node.name}.target"
        if target is None:
            continue
        if not targets.is_target(target):
            expected = "an object with publish(spark, batch_id, files), such as a ParquetSink"
            raise InputError(path, found=target, expected=expected)
        if not isinstance(target, targets.CommitTarget):
            check_function(target.publish, f"{path}.publish", arguments=("spark", "batch_id", "files"))
        directory = targets.of(target).directory
        where = id(target) if directory is None else Path(os.path.realpath(directory))
        if where in given:
            found = (
                f"{where if isinstance(where, Path) else target}, also the target of sink {given[where]!r}"
            )
            expected = "a separate target for each sink: a target stores one output per batch id"
            raise InputError(path, found=found, expected=expected)
        given[where] = name


def kept_outputs(manifest: Manifest | None) -> Mapping[str, Any]:
    """Return by sink what a manifest keeps of the output; empty if it says nothing of its own batch.

    Versions that do not know the key pass it on as it is, so it has the number of its batch.
    """
    entry = manifest.identity.get(OUTPUTS) if manifest is not None else None
    if manifest is None or entry is None or entry.get("batch") != manifest.batch:
        return {}
    sinks: Mapping[str, Any] = entry["sinks"]
    return sinks


class Publisher:
    """Publishes the winning attempts' staged files to each sink's target. May repeat it: targets are idempotent."""

    def __init__(self, checkpoint: Path, built: BuiltTopology) -> None:
        """Errors: those of `check_targets`."""
        self._checkpoint = checkpoint
        self._checkpoint_id = ""  # until `bind`
        check_targets(built)
        sinks = {node.name: node.target for sub in built.subtopologies for node in sub.sinks}
        self._sinks = sinks.keys()
        self._targets = {name: targets.of(target) for name, target in sinks.items() if target is not None}
        self._busy, self._closed = threading.Lock(), False

    def probe(self) -> None:
        """Let each target try whether it can write. Errors: those of a target that cannot."""
        for target in self._targets.values():
            target.probe()

    def check(self, checkpoint_id: str) -> None:
        """Let each target check that it may take this checkpoint's output. Errors: those of a target that may not."""
        for target in self._targets.values():
            target.check(checkpoint_id)

    def check_outputs(self, checkpoint_id: str, last: Manifest | None, batch_id: int) -> None:
        """Let each target compare its output with that of the last manifest, before `batch_id`. Errors: theirs."""
        for name, target in self._targets.items():
            target.check_output(self._output(checkpoint_id, name, last, batch_id))

    def bind(self, checkpoint_id: str) -> None:
        """Bind the targets to this checkpoint's output. Errors: as `check`."""
        self._checkpoint_id = checkpoint_id
        for target in self._targets.values():
            target.bind(checkpoint_id)

    def open(self, last: Manifest | None, batch_id: int, check_epoch: Callable[[], None]) -> None:
        """Let each target make ready to publish, from `batch_id` on. Errors: theirs."""
        for name, target in self._targets.items():
            output = self._output(self._checkpoint_id, name, last, batch_id)
            with self._busy:
                target.open_output(replace(output, check_epoch=check_epoch))

    def _output(self, checkpoint_id: str, sink: str, last: Manifest | None, batch_id: int) -> targets.Output:
        repeated = last is not None and last.batch == batch_id and bool(last.sinks.get(sink))
        return targets.Output(
            checkpoint_id=checkpoint_id,
            sink=sink,
            kept=kept_outputs(last).get(sink, {}),
            repeated=batch_id if repeated else None,
        )

    def with_outputs(self, identity: Mapping[str, Any], batch_id: int) -> dict[str, Any]:
        """Return the identity of a batch's manifest, with what each target keeps of its output."""
        made = {name: value for name, value in identity.items() if name != OUTPUTS}
        outputs = {name: dict(kept) for name, of in self._targets.items() if (kept := of.kept_output())}
        return {**made, OUTPUTS: {"batch": batch_id, "sinks": outputs}} if outputs else made

    def reopen(self) -> None:
        """Note that a batch has begun: what it opens stays open until the next `close`."""
        self._closed = False

    def close(self) -> None:
        """Close the targets. If one is publishing just now, it is closed when the batch ends."""
        self._closed = True
        if self._busy.acquire(blocking=False):
            try:
                self._close_all()
            finally:
                self._busy.release()

    def _close_all(self) -> None:
        for name, target in self._targets.items():
            try:
                target.close()
            except Exception as error:  # what ends must not hide why it ends
                log_failure(log, "the target of sink %r could not be closed", name, error=error)

    def check_pending(self, manifest: Manifest) -> None:
        """Refuse to drop the output of a batch that may not be published: that of a sink that is gone.

        Errors: `CheckpointError` with the sink and the way out.
        """
        gone = sorted(sink for sink, files in manifest.sinks.items() if files and sink not in self._sinks)
        if gone:
            raise CheckpointError(
                f"{self._checkpoint}: batch {manifest.batch} is committed and may have unpublished output for sink "
                f"{gone[0]!r}, which the topology no longer has; start the previous topology once to publish it"
            )

    def publish(
        self, spark: SparkSession, manifest: Manifest, check_epoch: Callable[[], None] = lambda: None
    ) -> None:
        """Publish a batch. `check_epoch` is called before each target and may raise to stop the publishing; a target
        may call it as well.

        Errors: `CheckpointError` for a missing or damaged staged file, and for output of a sink that the
        topology no longer has; the exception of a target, with a note that the batch is still to be published.
        """
        self.check_pending(manifest)
        with self._busy:
            try:
                self._publish(spark, manifest, check_epoch)
            except BaseException:
                self._closed = True
                raise
            finally:
                if self._closed:
                    self._close_all()

    def _publish(self, spark: SparkSession, manifest: Manifest, check_epoch: Callable[[], None]) -> None:
        for name, target in self._targets.items():
            staged = manifest.sinks.get(name, ())
            for file in staged:
                open_sealed(self._checkpoint / file.file, file.size, file.checksum).close()
            check_epoch()
            commit = targets.Commit(
                spark=spark,
                checkpoint_id=self._checkpoint_id,
                sink=name,
                batch_id=manifest.batch,
                files=[self._checkpoint / file.file for file in staged],
                check_epoch=check_epoch,
                read_checksum=partial(checksum, self._checkpoint, manifest.batch),
                nonce=manifest.nonce,
            )
            try:
                target.publish_commit(commit)
            except Fenced:  # another driver publishes the batch
                raise
            except Exception as error:
                pending = (
                    f"{self._checkpoint}: batch {manifest.batch} is committed but not published, because the target of "
                    f"sink {name!r} failed; nothing is lost: repair the target and restart"
                )
                log.error("%s (%s)", pending, shown_error(error))
                if sys.version_info >= (3, 11):
                    error.add_note(pending)
                raise
