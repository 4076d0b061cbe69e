"""Stages rows under the schema of their sink, so that a committed batch can always be published.

Idea: a sink has one schema, which is declared or taken from the first batch with rows. Every task of every batch
stages its rows under that schema. Rows that do not fit are refused in their task, before the batch can be committed.

Properties:
- Rows fit if the sink's types hold all values of their types (`taskplace.spark.casts`). The order of the columns
  and the layout of the values do not matter (`taskplace.spark.types`).
- Types decide, not values, so the answer is the same every day. There are two exceptions: a value that Spark cannot
  hold at all (a timestamp between two microseconds, or millions of years away), and integers in a float column.
- A declared float column also accepts integers, each value if the float holds it exactly: 2^60, but not 2^60 + 1.
- A column with only nulls may have no type; it gets the sink's type. While the sink's column has no type either, the
  column is left out of the files, and its name is in their metadata (`UNTYPED`).

Errors: `InputError` naming the sink, the column, both types, and the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from taskplace.errors import InputError
from taskplace.spark.casts import cast_hint, common, converted, plain
from taskplace.spark.messages import SinkSchema, TypedColumns
from taskplace.spark.types import Unreadable, check_names, parse, parsed, readable, text, untyped

T = pa.types
#: The key in the metadata of a staged file: the columns that it leaves out, with their positions, as JSON.
UNTYPED = b"taskplace.untyped"
#: About the bytes of a page in a staged file.
PAGE_BYTES = 1 << 20
_OR_DECLARE = (
    "or declare the sink's schema with more columns or wider types; for others, give the sink another name"
)
_A_TYPE = "a type, such as int64, string, timestamp, decimal(9, 2), list<int64>"


def declare(sink: str, given: object) -> SinkSchema:
    """Return the declared schema of a sink. Errors: `InputError` naming the column."""
    path = f"sinks.{sink}.schema"
    expected = "columns, such as {'k': 'string', 'n': 'int64'}"
    if isinstance(given, pa.Schema):
        # Not a mapping, which would hide a name that is there twice.
        pairs = list(zip(given.names, given.types, strict=True))
    elif isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        pairs = list(given.items())
    else:
        raise InputError(path, found=given, expected=expected)
    names = [name for name, _ in pairs]
    try:
        check_names(names)
    except Unreadable as error:
        raise InputError(path, found=names, expected=expected, hint=str(error)) from None
    columns = []
    for name, kind in pairs:
        at = f"{path}.{name}"
        staged = _staged_as(kind if isinstance(kind, pa.DataType) else parsed(str(kind), at, _A_TYPE), at)
        if untyped(staged):
            raise InputError(at, found=str(kind), expected=_A_TYPE)
        columns.append((name, text(staged)))
    return SinkSchema(tuple(columns), declared=True)


def _staged_as(kind: pa.DataType, path: str) -> pa.DataType:
    """Return the type as which a column is staged. Errors: `InputError`."""
    try:
        return readable(kind)
    except Unreadable as error:
        raise InputError(path, found=str(kind), expected="a type that Spark reads", hint=str(error)) from None


@lru_cache(maxsize=256)
def arrow(columns: TypedColumns) -> pa.Schema:
    """Return a sink's columns as an Arrow schema; columns without a type are of type null.

    >>> arrow((("k", "string"), ("n", "int64"))).types
    [DataType(string), DataType(int64)]
    """
    return pa.schema([(name, parse(kind)) for name, kind in columns])


def columns_of(schema: pa.Schema) -> TypedColumns:
    """Return the columns of a schema that has only `readable` types."""
    return tuple((field.name, text(field.type)) for field in schema)


def fits(fixed: pa.DataType, given: pa.DataType, *, declared: bool = False) -> pa.DataType | None:
    """Return the type as which a column is staged, given the sink's type and the rows' type; None if it does not fit.

    >>> fits(pa.int64(), pa.int32()), fits(pa.int64(), pa.float64()), fits(pa.float64(), pa.int64(), declared=True)
    (DataType(int64), None, DataType(double))
    """
    given = plain(given)
    if declared and T.is_floating(fixed) and T.is_integer(given):
        return fixed
    return common(fixed, readable(given), grow=False)


def fitted(rows: pa.Table, sink: str, fixed: SinkSchema | None) -> pa.Table:
    """Return the rows with the sink's columns and types, without metadata, as they are staged.

    `fixed` is None in the first batch. A column without a type, in the rows and in `fixed`, has the type null.
    """
    schema = _readable(rows.schema, sink)
    if fixed is not None:
        schema = _fixed(schema, rows.schema, sink, fixed)
    columns = []
    for field in schema:
        try:
            columns.append(converted(rows[field.name], field.type))
        except (pa.ArrowException, OverflowError) as error:
            kind = rows[field.name].type
            raise InputError(
                f"sinks.{sink}.{field.name}",
                found=f"{kind} ({error})",
                expected=f"values that fit {text(field.type)}",
                hint="round them in the processor (in pandas: dt.floor('us'))"
                if T.is_timestamp(kind)
                else "",
            ) from None
    return pa.Table.from_arrays(columns, schema=schema)


def _readable(schema: pa.Schema, sink: str) -> pa.Schema:
    try:
        check_names(schema.names)
    except Unreadable as error:
        raise InputError(
            f"sinks.{sink}", found=schema.names, expected="columns that Spark reads", hint=str(error)
        ) from None
    return pa.schema([(field.name, _staged_as(field.type, f"sinks.{sink}.{field.name}")) for field in schema])


def _fixed(as_read: pa.Schema, given: pa.Schema, sink: str, fixed: SinkSchema) -> pa.Schema:
    wanted = arrow(fixed.columns)
    said = "as declared" if fixed.declared else "as in its first batch"
    if set(as_read.names) != set(wanted.names):
        raise InputError(
            f"sinks.{sink}",
            found=f"columns {as_read.names}",
            expected=f"the columns of the sink, {said}: {wanted.names}",
            hint=f"emit all columns, with nulls where there is no value, {_OR_DECLARE}",
        )
    fields = []
    for field in wanted:
        kind = fits(field.type, given.field(field.name).type, declared=fixed.declared)
        if kind is None:
            raise InputError(
                f"sinks.{sink}.{field.name}",
                found=str(given.field(field.name).type),
                expected=f"{text(field.type)}, {said}",
                hint=f"{cast_hint(field.type, as_read.field(field.name).type)}, {_OR_DECLARE}",
            )
        fields.append((field.name, kind))
    return pa.schema(fields)


def _rows_at_a_time(rows: pa.Table) -> int:
    """Return how many rows Parquet writes before it looks at the size of a page: a page is read at once later."""
    return max(1, min(1024, rows.num_rows * PAGE_BYTES // max(rows.nbytes, 1)))


def parquet(rows: pa.Table, sink: str) -> pa.Buffer:
    """Return a Parquet file with rows from `fitted`. Errors: `InputError` for rows that Parquet cannot hold."""
    left_out = [(i, field.name) for i, field in enumerate(rows.schema) if T.is_null(field.type)]
    if left_out and len(left_out) < rows.num_columns:
        rows = rows.drop_columns([name for _, name in left_out])
        rows = rows.replace_schema_metadata({UNTYPED: json.dumps(left_out)})
    out = pa.BufferOutputStream()
    try:
        pq.write_table(rows, out, write_batch_size=_rows_at_a_time(rows))
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError(
            f"sinks.{sink}", found=f"rows that Parquet cannot store ({error})", expected=f"{rows.schema}"
        ) from None
    return out.getvalue()


def left_out(metadata: Mapping[bytes, bytes] | None) -> Iterable[tuple[int, str]]:
    """Return the columns that a file leaves out because they have no type yet, with their positions."""
    return [(place, name) for place, name in json.loads((metadata or {}).get(UNTYPED, b"[]"))]
