"""Decides the schemas of sinks on the driver, and checks a batch's staged files before its manifest.

Idea: a task stages its rows under the schema of the sink (`taskplace.spark.worker.schemas`). In the first batch with
rows the schema is unknown, so each task stages its rows unchanged, and the driver computes the schema that holds them
all. A file with narrower types, or without a type, is rewritten. From then on every manifest has the schema.

Properties:
- All files of a sink that a manifest names have the same columns, types and order.
- A declared schema counts from the start. It replaces the kept one. It may have more columns, and types that hold all
  values of the old ones. Files that were published before do not change.
- A column without a type so far is kept as `null`; the first type that comes is taken.

Errors: `InputError` if the tasks' schemas cannot be united, or if the type of a column is unknown; `CheckpointError`
for a declared schema that the kept one cannot be widened to.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from taskplace.errors import CheckpointError, InputError
from taskplace.spark import targets
from taskplace.spark.casts import common, conformed, united
from taskplace.spark.checkpoint.files import read_sealed, write_file
from taskplace.spark.codec import checksum_of
from taskplace.spark.compile.infer import check_typed
from taskplace.spark.messages import Report, SinkSchema, StagedFile, TypedColumns
from taskplace.spark.types import text
from taskplace.spark.worker.schemas import arrow, columns_of, declare, parquet
from topology import BuiltTopology, TaskId

log = logging.getLogger(__name__)

#: The key of the schemas in an `identity`: sink -> [[column, type], ...].
SCHEMAS = "schemas"

Schemas = dict[str, list[list[str]]]


class SinkSchemas:
    """The declared schemas, compared with those that the checkpoint has kept."""

    def __init__(self, built: BuiltTopology) -> None:
        """Read the declared schemas. Errors: `InputError` for an invalid one."""
        self.declared: dict[str, SinkSchema] = {}
        for node in (node for sub in built.subtopologies for node in sub.sinks):
            if node.options.get("schema") is None:
                continue
            self.declared[node.name] = schema = declare(node.name, node.options["schema"])
            reserved = targets.of(node.target).reserved
            for name, _ in schema.columns:
                if name.lower() in reserved:
                    raise InputError(
                        f"sinks.{node.name}.schema.{name}",
                        found="a column that the sink's target adds itself",
                        expected=f"a name other than {', '.join(sorted(reserved))}",
                    )
        self._told: set[tuple[str, SinkSchema]] = set()

    def check(self, root: Path, identity: Mapping[str, Any]) -> None:
        """Refuse declared schemas that the kept ones cannot be widened to; log the changes."""
        for sink, schema in self.declared.items():
            before = kept(identity, sink)
            if before is None or before.columns == schema.columns:
                continue
            if reasons := list(_reasons(before, schema)):
                raise CheckpointError(
                    f"{root}: sink {sink!r} has the schema {before.written}, found the declared schema "
                    f"{schema.written}: {'; '.join(reasons)}; columns may be added and types may become wider; for "
                    "other changes give the sink another name and another directory"
                )
            if (sink, schema) not in self._told:
                self._told.add((sink, schema))
                changes = f"{before.written} to {schema.written}"
                log.warning("%s: the schema of sink %r changes from %s", root, sink, changes)

    def of(self, sinks: Iterable[str], identity: Mapping[str, Any]) -> dict[str, SinkSchema]:
        """Return the schemas of `sinks`, without those that have none yet."""
        schemas = {sink: self.declared.get(sink) or kept(identity, sink) for sink in sinks}
        return {sink: schema for sink, schema in schemas.items() if schema is not None}

    def settle(
        self, root: Path, reports: Mapping[TaskId, Report], identity: Mapping[str, Any]
    ) -> tuple[dict[str, list[StagedFile]], Schemas]:
        """Return the files that a batch's manifest names, by sink, and the schemas to keep.

        A file has the rows of all reports that name it. O(tasks), and O(bytes) of the files that must be rewritten.
        """
        staged: dict[str, dict[TaskId, Report]] = {}
        for task in sorted(reports):
            for sink in reports[task].sinks:
                staged.setdefault(sink, {})[task] = reports[task]
        schemas: Schemas = dict(identity.get(SCHEMAS) or {})
        schemas |= {sink: [list(c) for c in schema.columns] for sink, schema in self.declared.items()}
        files = {}
        for sink, by_task in staged.items():
            fixed = self.of([sink], identity).get(sink)
            schema = _settled(sink, {task: report.staged_as[sink] for task, report in by_task.items()}, fixed)
            schemas[sink] = [list(column) for column in columns_of(schema)]
            written_as = {report.sinks[sink]: report.staged_as[sink] for report in by_task.values()}
            files[sink] = [
                file if columns == columns_of(schema) else _rewritten(root, sink, file, schema)
                for file, columns in written_as.items()
            ]
        return files, schemas


def kept(identity: Mapping[str, Any], sink: str) -> SinkSchema | None:
    """Return the schema of a sink in a manifest's identity; None if the manifest has none."""
    columns = (identity.get(SCHEMAS) or {}).get(sink)
    return None if columns is None else SinkSchema(tuple((name, kind) for name, kind in columns))


def _reasons(before: SinkSchema, after: SinkSchema) -> Iterable[str]:
    wanted = arrow(after.columns)
    types = dict(zip(wanted.names, wanted.types, strict=True))
    for field in arrow(before.columns):
        if field.name not in types:
            yield f"column {field.name!r} is not in it"
        elif common(types[field.name], field.type, grow=False) is None:
            yield f"column {field.name!r} is {text(field.type)}, which {text(types[field.name])} does not hold"


def _settled(sink: str, by_task: Mapping[TaskId, TypedColumns], fixed: SinkSchema | None) -> pa.Schema:
    """Return the schema that holds the staged rows of all tasks, with columns in the sink's order."""
    schema = united(
        [(f"task {task}", arrow(columns)) for task, columns in by_task.items()],
        f"sinks.{sink}",
        ", or declare the schema of the sink",
    )
    if fixed is not None:  # all tasks staged under this schema, except for columns that had no type
        schema = pa.schema([schema.field(name) for name, _ in fixed.columns])
    check_typed(sink, schema)
    return schema


def _rewritten(root: Path, sink: str, file: StagedFile, schema: pa.Schema) -> StagedFile:
    """Write the rows of a staged file into a new one beside it, under a schema that they fit; return the new file.

    Errors: `CheckpointError` for a missing or damaged file.
    """
    data = read_sealed(root / file.file, file.size, file.checksum)
    rows = pq.ParquetFile(pa.BufferReader(data)).read()
    for name in schema.names:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
    data = parquet(conformed(rows.select(schema.names), schema, f"sinks.{sink}"), sink)
    old = Path(file.file)
    path = str(old.with_name(f"{old.stem}-{uuid.uuid4().hex}{old.suffix}"))
    write_file(root / path, data, sync=True, mode=0o666)
    return structs.replace(file, file=path, size=data.size, checksum=checksum_of(data))
