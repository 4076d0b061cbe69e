"""Publishing what was staged before sinks had schemas: a committed batch whose files may not agree.

Idea: such a batch cannot be run again, so its files are made one: by types that hold all values, and by nulls for a
column that one file lacks, as Spark would read it. Where no type holds all, the user says as what the rows are to be
published, by declaring the sink's schema; then values decide: a double column of 1.0, 2.0 and null is int64 if that is
asked for. As `string` everything can be published.

Properties: no row and no column is lost; files that agree, and that Spark reads, are published as they are. The files
that are written lie beside the others and go with them.

Errors: `CheckpointError` naming the sink, the column, the files and the option. The batch stays committed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from taskplace.errors import CheckpointError
from taskplace.spark.driver.staging import read_staged, write_staged
from taskplace.spark.messages import SinkSchema, StagedFile
from taskplace.spark.worker.columns import Unreadable, readable, text, untyped
from taskplace.spark.worker.schemas import arrow
from taskplace.spark.worker.unify import common, converted

log = logging.getLogger(__name__)


def agreeing(
    root: Path, sink: str, batch: int, staged: Sequence[StagedFile], declared: SinkSchema | None
) -> list[StagedFile]:
    """Return files with the same rows that are all of one schema: those that are there, or others."""
    schemas = [_numbered(pq.read_schema(root / file.file)) for file in staged]
    agree = all(schema.equals(schemas[0]) for schema in schemas)
    try:
        if declared is not None:
            schema = _declared(sink, batch, schemas, declared)
        else:
            schema = _united(sink, batch, staged, schemas)
        if agree and schema.equals(pq.read_schema(root / staged[0].file)):
            return list(staged)
        log.warning("batch %d: what was staged for sink %r is published as %s", batch, sink, _written(schema))
        return [
            write_staged(root, sink, file, _as(read_staged(root, file), schema, file, sink, batch))
            for file in staged
        ]
    except CheckpointError:
        if agree and declared is None:  # in what Spark may not read, but maybe the target does
            return list(staged)
        raise


def _numbered(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns Spark tells apart: those of one name get numbers."""
    seen: dict[str, int] = {}
    fields = []
    for field in schema:
        seen[field.name.lower()] = count = seen.get(field.name.lower(), 0) + 1
        fields.append(field if count == 1 else field.with_name(f"{field.name}_{count}"))
    return pa.schema(fields)


def _names(schemas: Sequence[pa.Schema]) -> list[str]:
    return list(dict.fromkeys(name for schema in schemas for name in schema.names))


def _united(sink: str, batch: int, staged: Sequence[StagedFile], schemas: Sequence[pa.Schema]) -> pa.Schema:
    fields = []
    for name in _names(schemas):
        found: pa.DataType = pa.null()
        for file, schema in zip(staged, schemas, strict=True):
            if name not in schema.names:
                continue
            given = schema.field(name).type
            try:
                kind = common(found, readable(given))
            except Unreadable as error:
                raise _stuck(sink, batch, name, f"{given} in {file.file} ({error})") from None
            if kind is None:
                raise _stuck(sink, batch, name, f"{text(found)} and {given}, in {file.file}")
            found = kind
        if untyped(found) and not pa.types.is_null(found):
            raise _stuck(sink, batch, name, f"{found}, of which nothing says the type")
        fields.append((name, found))
    return pa.schema(fields)


def _stuck(sink: str, batch: int, column: str, found: str) -> CheckpointError:
    return CheckpointError(
        f"batch {batch} is committed, and cannot be published: sink {sink!r}, column {column!r}: found {found}; say as "
        f"what it is to be published by the sink's option schema, with all columns: sink({sink!r}, "
        f"schema={{{column!r}: 'string', ...}}), and start again; as 'string' everything can be published"
    )


def _declared(sink: str, batch: int, schemas: Sequence[pa.Schema], declared: SinkSchema) -> pa.Schema:
    schema = arrow(declared.columns)
    if more := [name for name in _names(schemas) if name not in schema.names]:
        raise CheckpointError(
            f"batch {batch} is committed, and cannot be published: sink {sink!r} has columns {more}, which its "
            f"declared schema {declared.written} leaves out; declare them too"
        )
    return schema


def _as(table: pa.Table, schema: pa.Schema, file: StagedFile, sink: str, batch: int) -> pa.Table:
    table = table.rename_columns(_numbered(table.schema).names)
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        column = table[field.name]
        try:
            columns.append(converted(column, field.type))
        except (pa.ArrowException, OverflowError) as error:
            if not pa.types.is_string(field.type):
                found = f"{column.type} in {file.file}, not {text(field.type)} ({error})"
                raise _stuck(sink, batch, field.name, found) from None
            columns.append(_texts(column))
    return pa.Table.from_arrays(columns, schema=schema)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as texts, those without a text of their own as JSON."""
    said = [
        None if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
        for value in column.to_pylist()
    ]
    return pa.chunked_array([pa.array(said, pa.string())])


def _written(schema: pa.Schema) -> str:
    return str({field.name: text(field.type) for field in schema})
