"""Columns and their types: schemas of names and types, columns of tables by name, and casts that are refused.

Errors: `InputError` with the path, what was found, and the nearest name.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.types import TypeTextError, parse
from taskplace.validation import NO_SURROGATES, has_surrogates, named, nearest


def arrow_schema(columns: pa.Schema | Mapping[str, object], path: str = "store") -> pa.Schema:
    """Return the Arrow schema of `columns` (name -> type or type name).

    The names are those of a sink's schema (`column_types.parse`). Errors: `InputError` with the nearest name, or for
    a column that a schema has twice.

    >>> arrow_schema({"tailnum": "string", "at": "timestamp"}).types
    [DataType(string), TimestampType(timestamp[us, tz=UTC])]
    """
    if isinstance(columns, pa.Schema):
        if len(set(columns.names)) != len(columns):  # a mapping would keep only the last one
            raise InputError(path, found=columns.names, expected="each column name once")
        return columns
    if not isinstance(columns, Mapping):
        raise InputError(path, found=columns, expected="columns with their types, such as {'id': 'int64'}")
    fields = []
    for name, kind in columns.items():
        named(name, path, "the name of a column")
        if not isinstance(kind, pa.DataType):
            expected = "an Arrow type or its name, such as 'int64' or 'decimal(9, 2)'"
            if not isinstance(kind, str):
                raise InputError(f"{path}.{name}", found=kind, expected=expected)
            kind = parsed(kind, f"{path}.{name}", expected)
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def parsed(written: str, path: str, expected: str) -> pa.DataType:
    """Return the type that a text means. Errors: `InputError` with the place inside it and the nearest known name.

    >>> parsed("list<innt>", "stores.seen.key.id", "a type")
    Traceback (most recent call last):
    taskplace.errors.InputError: stores.seen.key.id.element: found 'innt', expected a type; did you mean 'int'?
    """
    if has_surrogates(written):  # in the name of a struct's field
        raise InputError(path, found=written, expected=NO_SURROGATES)
    try:
        return parse(written)
    except TypeTextError as error:
        if error.found == written.strip():  # all of it is one wrong word
            raise InputError(path, found=written, expected=expected, hint=error.hint) from None
        raise InputError(
            f"{path}{error.suffix}",
            found=error.found,
            expected=error.expected,
            hint=error.hint,
        ) from None


def table_given(rows: object, path: str) -> None:
    """Refuse rows that are not an Arrow table. Errors: `InputError`."""
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        raise InputError(
            path, found=rows, expected="a pyarrow.Table", hint="pa.Table.from_pylist(rows) makes one"
        )


def column_of(rows: pa.Table | pa.RecordBatch, name: str, path: str) -> pa.ChunkedArray:
    """Return a column by its name. Errors: `InputError` with the existing columns and the nearest one.

    A table without rows may lack columns (such as `pa.table({})`), so it gives an empty column for any name.
    """
    table_given(rows, path)
    if not rows.num_rows:
        return pa.chunked_array([pa.nulls(0)])
    index = rows.schema.get_field_index(name)
    if index < 0:
        names = rows.schema.names
        expected = f"one column {name!r}" if name in names else f"a column {name!r}"
        raise InputError(path, found=names, expected=expected, hint=nearest(name, names))
    return rows.column(index)


def check_cast(given: pa.DataType, wanted: pa.DataType, path: str, column: str = "") -> None:
    """Refuse to read a number or a text as a time, or a time as a number, because the unit is unknown.

    Arrow would do it: an integer becomes a timestamp in the store's unit, and a timestamp a number in its own unit.
    `column` is the name of the source column, if it differs.

    >>> check_cast(pa.int64(), pa.timestamp("us"), "stores.seen.value.at")
    Traceback (most recent call last):
    taskplace.errors.InputError: stores.seen.value.at: found 'int64', expected timestamp[us]; \
cast the column before: a number has no unit of time
    """
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_null(given) or pa.types.is_temporal(given) == pa.types.is_temporal(wanted):
        return
    if pa.types.is_temporal(given) and not _is_number(wanted):
        return  # a time as text loses nothing
    what = "a number has no unit of time" if _is_number(given) or _is_number(wanted) else "parse the text"
    shown = f"{column!r}, {given}" if column else str(given)
    raise InputError(path, found=shown, expected=str(wanted), hint=f"cast the column before: {what}")


def _is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )
