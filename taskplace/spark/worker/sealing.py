"""Seals the output of one attempt: its changelog and its boundaries in the checkpoint, and its rows for sinks.

They do not count until a manifest names the attempt. The staged output is written and synced later, together with that
of other attempts, and the changelog is synced then (`taskplace.spark.worker.bins`). Boundaries are not
synced: only this batch needs them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from taskplace.spark.checkpoint.files import Changes, encode_changes
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import (
    AttemptDescriptor,
    Boundary,
    Change,
    TypedColumns,
)
from taskplace.spark.worker import boundary, schemas
from taskplace.spark.worker.bin_context import BinContext
from taskplace.spark.worker.program import Outputs


@dataclass(frozen=True)
class Sealed:
    """The output of one attempt: `rows` for its sinks, and what its `Report` says of the rest."""

    change: Change | None
    boundaries: Mapping[str, Boundary]
    rows: Mapping[str, pa.Table]

    @property
    def staged_as(self) -> dict[str, TypedColumns]:
        """The columns of the rows, by sink."""
        return {sink: schemas.columns_of(rows.schema) for sink, rows in self.rows.items()}


@dataclass(frozen=True)
class Sealer:
    """Seals the output of the attempt with the id `attempt`."""

    context: BinContext
    descriptor: AttemptDescriptor
    attempt: str

    def seal(self, outputs: Outputs, writes: Changes) -> Sealed:
        """Write the rows for internal topics and the records of the changed stores; fit the rows for sinks.

        Errors: `InputError` for rows that do not fit their sink's schema; then nothing was written.
        """
        rows = self._fitted(outputs.sinks)
        boundaries = self._boundaries(outputs.topics)
        return Sealed(self._change(writes) if writes else None, boundaries, rows)

    def _fitted(self, sinks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the rows to stage, for each sink with rows. Errors: also those of the targets' checks."""
        known, checks = self.context.setting.sinks, self.context.program.row_checks
        fitted = {
            sink: schemas.fitted(rows, sink, known.get(sink)) for sink, rows in sinks.items() if rows.num_rows
        }
        for sink, rows in fitted.items():
            if (check := checks.get(sink)) is not None:
                check.check_rows(sink, rows)
        return fitted

    def _boundaries(self, topics: Mapping[str, pa.Table]) -> dict[str, Boundary]:
        task, batch = self.descriptor.task, self.context.setting.batch
        written = {}
        for topic, rows in topics.items():
            to = self.context.program.repartitions[topic]
            seed = zlib.crc32(f"{topic} {task} {batch}".encode())
            file = self.context.files.boundary(topic)
            written[topic] = boundary.write(
                file, rows, to.key, to.partitions, seed=seed, topic=topic, task=str(task)
            )
        return written

    def _change(self, writes: Changes) -> Change:
        """Write the records of the stores with a changelog; nothing if there is no record."""
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
        segment = self.context.files.segment
        start = segment.append(data)
        return replace(change, file=segment.name, size=data.size, checksum=checksum_of(data), start=start)
