"""Writes the files of one attempt into the checkpoint: its changelog, its boundaries and its staged output.

They do not count until a manifest names the attempt. Changelog and staged output are synced later, together with those
of other attempts (`taskplace.spark.worker.attempt_reports`). Boundaries are not synced: only this batch needs them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import (
    AttemptDescriptor,
    Boundary,
    Change,
    StagedFile,
    TypedColumns,
    batch_dir,
    change_file,
)
from taskplace.spark.state.files import Changes, encode_changes, file_name
from taskplace.spark.worker import boundary, schemas
from taskplace.spark.worker.bin_context import BinContext
from taskplace.spark.worker.program import Outputs


@dataclass(frozen=True)
class Sealed:
    """The files of one attempt, in the form of its report; see `Report` for the fields."""

    change: Change | None
    boundaries: Mapping[str, Boundary]
    sinks: Mapping[str, StagedFile]
    staged_as: Mapping[str, TypedColumns]


@dataclass(frozen=True)
class Sealer:
    """Writes the files of the attempt with the id `attempt`."""

    context: BinContext
    descriptor: AttemptDescriptor
    attempt: str

    def seal(self, outputs: Outputs, writes: Changes) -> Sealed:
        """Write the rows for internal topics and sinks, and the records of the changed stores.

        Errors: `InputError` for rows that do not fit their sink's schema; then nothing was written.
        """
        rows = self._fitted(outputs.sinks)
        boundaries, sinks = self._boundaries(outputs.topics), self._staged(rows)
        return Sealed(
            change=self._change(writes) if writes else None,
            boundaries=boundaries,
            sinks=sinks,
            staged_as={sink: schemas.columns_of(table.schema) for sink, table in rows.items()},
        )

    def _fitted(self, sinks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the rows to stage, for each sink with rows."""
        known = self.context.setting.sinks
        return {
            sink: schemas.fitted(rows, sink, known.get(sink)) for sink, rows in sinks.items() if rows.num_rows
        }

    def _boundaries(self, topics: Mapping[str, pa.Table]) -> dict[str, Boundary]:
        task, batch = self.descriptor.task, self.context.setting.batch
        written = {}
        for topic, rows in topics.items():
            to = self.context.program.repartitions[topic]
            file = f"{batch_dir(batch)}/topics/{file_name(topic)}/{task}-{self.attempt}.arrow"
            seed = zlib.crc32(f"{topic} {task} {batch}".encode())
            written[topic] = boundary.write(
                self.context.checkpoint, file, rows, to.key, to.partitions, seed=seed, topic=topic
            )
        return written

    def _staged(self, sinks: Mapping[str, pa.Table]) -> dict[str, StagedFile]:
        folder, task = batch_dir(self.context.setting.batch), self.descriptor.task
        staged = {}
        for sink, rows in sinks.items():
            data = schemas.parquet(rows, sink)
            file = f"{folder}/sinks/{file_name(sink)}/{task}-{self.attempt}.parquet"
            path = self.context.checkpoint / file
            self.context.files.write(path, data, mode=0o666)  # a sink may link it; its directory is private
            staged[sink] = StagedFile(file, rows.num_rows, data.size, checksum_of(data))
        return staged

    def _change(self, writes: Changes) -> Change:
        """Write the records of the stores with a changelog; no file if there is no record."""
        logged = {name: entries for name, entries in writes.items() if name in self.context.program.logged}
        base, records = self.descriptor.history.end, sum(map(len, logged.values()))
        change = Change(
            version=self.context.setting.batch,
            attempt=self.attempt,
            base=base.attempt,
            offset=base.offset + records,
            records=records,
        )
        if not records:
            return change
        metadata = {
            "task": str(self.descriptor.task),
            "version": str(change.version),
            "attempt": change.attempt,
            "base": change.base,
        }
        data = encode_changes(logged, metadata, self.context.setting.compression)
        file = change_file(self.descriptor.task, change.version, change.attempt)
        self.context.files.write(self.context.checkpoint / file, data)
        return replace(change, file=file, size=data.size, checksum=checksum_of(data))
