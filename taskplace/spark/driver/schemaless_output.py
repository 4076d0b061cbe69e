"""Publishes a committed batch from before sinks had schemas, whose staged files may have different schemas.

Idea: such a batch cannot run again, so its files are converted to one schema: with types that hold all values, and
with nulls for a column that a file lacks, as Spark would read it. If no type holds all values, the user declares the
sink's schema. Then values decide: a double column of 1.0, 2.0 and null becomes int64 if int64 is declared. Every column
can be published as `string`.

Properties: no row and no column is lost. Files with equal schemas that Spark can read are published unchanged. New
files are written beside the old ones and are pruned with them.

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
from taskplace.logs import RepeatedWarnings
from taskplace.spark.casts import common, converted
from taskplace.spark.driver.staging import read_staged, write_staged
from taskplace.spark.messages import SinkSchema, StagedFile
from taskplace.spark.types import Unreadable, readable, text, untyped
from taskplace.spark.values import python_of
from taskplace.spark.worker.schemas import arrow

log = logging.getLogger(__name__)

#: By checkpoint and sink: each batch may find the same difference again.
_REPEATED = RepeatedWarnings()


def agreeing(
    root: Path, sink: str, batch: int, staged: Sequence[StagedFile], declared: SinkSchema | None
) -> list[StagedFile]:
    """Return files with the same rows and one schema: the staged files, or converted ones."""
    schemas = [_numbered(pq.read_schema(root / file.file)) for file in staged]
    agree = all(schema.equals(schemas[0]) for schema in schemas)
    try:
        if declared is not None:
            schema = _declared(sink, batch, schemas, declared)
        else:
            schema = _united(sink, batch, staged, schemas)
        if agree and schema.equals(pq.read_schema(root / staged[0].file)):
            return list(staged)
        written = _written(schema)
        said = "batch %d: the staged rows of sink %r are published as %s"
        _REPEATED.warn(log, said, batch, sink, written, key=(root, sink), kind=written)
        return [
            write_staged(root, sink, file, _as(read_staged(root, file), schema, file, sink, batch))
            for file in staged
        ]
    except CheckpointError:
        if (
            agree and declared is None
        ):  # Spark may be unable to read their types, but the target may accept them
            return list(staged)
        raise


def _numbered(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose column names differ for Spark: columns with the same name get numbers."""
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
        merged: pa.DataType = pa.null()
        for file, schema in zip(staged, schemas, strict=True):
            if name not in schema.names:
                continue
            given = schema.field(name).type
            try:
                kind = common(merged, readable(given))
            except Unreadable as error:
                raise _stuck(sink, batch, name, f"{given} in {file.file} ({error})") from None
            if kind is None:
                raise _stuck(sink, batch, name, f"{text(merged)} and {given}, in {file.file}")
            merged = kind
        if untyped(merged) and not pa.types.is_null(merged):
            raise _stuck(sink, batch, name, f"{merged}, which has no complete type")
        fields.append((name, merged))
    return pa.schema(fields)


def _stuck(sink: str, batch: int, column: str, problem: str) -> CheckpointError:
    return CheckpointError(
        f"batch {batch} is committed but cannot be published: sink {sink!r}, column {column!r}: found {problem}; "
        f"declare the type of every column in the sink's schema, sink({sink!r}, schema={{{column!r}: 'string', ...}}), "
        "and restart; 'string' accepts all values"
    )


def _declared(sink: str, batch: int, schemas: Sequence[pa.Schema], declared: SinkSchema) -> pa.Schema:
    schema = arrow(declared.columns)
    if more := [name for name in _names(schemas) if name not in schema.names]:
        raise CheckpointError(
            f"batch {batch} is committed but cannot be published: sink {sink!r} has columns {more} that are not in its "
            f"declared schema {declared.written}; add them to the schema"
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
                problem = f"{column.type} in {file.file}, not {text(field.type)} ({error})"
                raise _stuck(sink, batch, field.name, problem) from None
            columns.append(_texts(column))
    return pa.Table.from_arrays(columns, schema=schema)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as texts; values that are not texts become JSON."""
    said = [
        None if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
        for value in python_of(column)
    ]
    return pa.chunked_array([pa.array(said, pa.string())])


def _written(schema: pa.Schema) -> str:
    return str({field.name: text(field.type) for field in schema})
