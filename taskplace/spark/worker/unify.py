"""Unites the tables of several writers under one schema, without loss.

Idea: tasks, parents of a merge, and batches may give one column different types for the same values: int32 and
int64, a text and its dictionary, or no type at all (a column with only nulls). `common` returns the type that holds all
values of both; `united` does that for whole schemas, and `concat` for tables.

Properties:
- Types decide, never values, so the answer is the same for every batch. Only a time that its finer
  unit cannot hold is refused by its value.
- Columns are matched by name; the first table gives the order. A column that one table lacks is an error, not a null.
- Kinds of types are never mixed: integers and floats, numbers and texts, dates and timestamps, or timestamps
  with and without a time zone have no common type.

Non-goals: what a sink may hold (`taskplace.spark.worker.schemas`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark import casts

T = pa.types
#: The range of each integer type, narrow types first.
INTEGERS = {
    kind: ((-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1))
    for bits in (8, 16, 32, 64)
    for signed, kind in (
        (True, getattr(pa, f"int{bits}")()),
        (False, getattr(pa, f"uint{bits}")()),
    )
}
FLOATS = (pa.float16(), pa.float32(), pa.float64())
UNITS = ("s", "ms", "us", "ns")
PANDAS = "integers with a null among them come out of pandas as float64: use pd.Int64Dtype(), or fillna"


def common(one: pa.DataType, other: pa.DataType, *, grow: bool = True) -> pa.DataType | None:
    """Return the narrowest type that holds all values of both; None if there is none.

    Without `grow` the result must be `one`, except for parts of it that have no type yet.

    >>> common(pa.int32(), pa.int64()), common(pa.int64(), pa.float64()), common(pa.null(), pa.string())
    (DataType(int64), None, DataType(string))
    >>> common(pa.int32(), pa.int64(), grow=False), common(pa.int64(), pa.int32(), grow=False)
    (None, DataType(int64))
    """
    if T.is_null(one) or T.is_null(other):
        return other if T.is_null(one) else one
    if one.equals(other):
        return one
    one, other = plain(one), plain(other)
    if one.equals(other):
        return one
    if is_list(one) and is_list(other):
        inner = common(one.value_type, other.value_type, grow=grow)
        large = any(T.is_large_list(kind) for kind in (one, other))
        return inner and (pa.large_list(inner) if large else pa.list_(inner))
    if T.is_struct(one) and T.is_struct(other):
        return _struct(one, other, grow)
    if T.is_map(one) and T.is_map(other):
        key = common(one.key_type, other.key_type, grow=grow)
        item = common(one.item_type, other.item_type, grow=grow)
        return key and item and pa.map_(key, item)
    merged = next((kind for rule in _RULES if (kind := rule(one, other)) is not None), None)
    return merged if grow or merged is None or merged.equals(one) else None


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values themselves, without dictionary, run-end encoding or extension type.

    >>> plain(pa.dictionary(pa.int8(), pa.string()))
    DataType(string)
    """
    while True:
        if T.is_dictionary(kind) or T.is_run_end_encoded(kind):
            kind = kind.value_type
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        else:
            return kind


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list type, of any layout."""
    return any(
        test(kind)
        for test in (T.is_list, T.is_large_list, T.is_fixed_size_list, T.is_list_view, T.is_large_list_view)
    )


def converted(column: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type. O(bytes) if the types differ; a value that the type cannot hold is an error.

    Errors: `pa.ArrowException`.
    """
    if column.type.equals(to):
        return column
    return pa.chunked_array([_converted(chunk, to) for chunk in column.chunks], to)


def united(schemas: Sequence[tuple[str, pa.Schema]], where: str, more: str = "") -> pa.Schema:
    """Return the schema that holds the rows of all `schemas`, each given with the name of its writer.

    `more`: a remedy besides a cast, for the error about types that do not fit.
    Errors: `InputError` naming `where`, the column, both writers and both types.
    """
    name, first = schemas[0]
    if all(schema.equals(first) for _, schema in schemas):
        return first
    for other, schema in schemas:
        _check_columns(where, name, first.names, other, schema.names)
    types = {field.name: field.type for field in first}
    said = dict.fromkeys(types, name)
    for other, schema in schemas[1:]:
        for column, before in types.items():
            kind = schema.field(column).type
            merged = common(before, kind)
            if merged is None:
                raise InputError(
                    f"{where}, column {column!r}",
                    found=f"{kind} from {other}, {before} from {said[column]}",
                    expected="types of which one can hold all values of the other",
                    hint=cast(before, kind) + more,
                )
            if not merged.equals(before):
                types[column], said[column] = merged, other
    return pa.schema(list(types.items()))


def cast(*kinds: pa.DataType) -> str:
    """Return the remedy for types that have no common type."""
    numbers = {T.is_integer(kind) or T.is_floating(kind) for kind in kinds} == {True}
    return f"cast the column in the processor ({PANDAS})" if numbers else "cast the column in the processor"


def concat(tables: Sequence[tuple[str, pa.Table]], where: str) -> pa.Table:
    """Return the rows of all tables, each given with the name of its writer, in their order.

    A table without rows is ignored, because it may have columns of any type.
    Errors: as `united`.
    """
    some = [(name, table) for name, table in tables if table.num_rows]
    if not some:
        return tables[0][1]
    schema = united([(name, table.schema) for name, table in some], where)
    return pa.concat_tables([conformed(table, schema, where) for _, table in some])


def conformed(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Return a table under a schema that `united` made for it. Errors: `InputError` for a value that does not fit."""
    if table.schema.equals(schema):
        return table.replace_schema_metadata(schema.metadata)
    columns = []
    for field in schema:
        try:
            columns.append(converted(table[field.name], field.type))
        except (pa.ArrowException, OverflowError) as error:
            raise InputError(
                f"{where}, column {field.name!r}",
                found=f"{table[field.name].type} ({error})",
                expected=f"values that fit {field.type}",
            ) from None
    return pa.Table.from_arrays(columns, schema=schema)


def _check_columns(where: str, one: str, names: Sequence[str], other: str, others: Sequence[str]) -> None:
    for by, columns in ((one, names), (other, others)):
        if len(set(columns)) != len(columns):
            raise InputError(where, found=f"columns {columns} from {by}", expected="each column name once")
    if set(names) != set(others):
        raise InputError(
            where,
            found=f"columns {sorted(others)} from {other}, {sorted(names)} from {one}",
            expected="the same columns from each",
            hint="let the processor emit every column, with nulls where there is no value",
        )


# ---------------------------------------------------------------------------------- the rules of `common`


def _struct(one: pa.StructType, other: pa.StructType, grow: bool) -> pa.DataType | None:
    names = [field.name for field in one]
    if len(set(names)) != len(names) or sorted(names) != sorted(field.name for field in other):
        return None
    fields = [(name, common(one.field(name).type, other.field(name).type, grow=grow)) for name in names]
    return pa.struct(fields) if all(kind is not None for _, kind in fields) else None


def _integers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one not in INTEGERS or other not in INTEGERS:
        return None
    low, high = zip(INTEGERS[one], INTEGERS[other], strict=True)
    return next((kind for kind, (a, b) in INTEGERS.items() if a <= min(low) and b >= max(high)), None)


def _floats(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one not in FLOATS or other not in FLOATS:
        return None
    return max(one, other, key=FLOATS.index)


def _decimals(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not (T.is_decimal(one) and T.is_decimal(other)):
        return None
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale) + scale
    if digits > 76:
        return None
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)


def _texts(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    def is_text(kind: pa.DataType) -> bool:
        return T.is_string(kind) or T.is_large_string(kind) or T.is_string_view(kind)

    if not (is_text(one) and is_text(other)):
        return None
    return pa.large_string() if T.is_large_string(one) or T.is_large_string(other) else pa.string()


def _binaries(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    def is_bytes(kind: pa.DataType) -> bool:
        tests = (T.is_binary, T.is_large_binary, T.is_binary_view, T.is_fixed_size_binary)
        return any(test(kind) for test in tests)

    if not (is_bytes(one) and is_bytes(other)):
        return None
    return pa.large_binary() if T.is_large_binary(one) or T.is_large_binary(other) else pa.binary()


def _times(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if T.is_date(one) and T.is_date(other):
        return pa.date32()
    for test in (T.is_timestamp, T.is_duration, T.is_time):
        if not (test(one) and test(other)):
            continue
        unit = max(one.unit, other.unit, key=UNITS.index)
        if T.is_duration(one):
            return pa.duration(unit)
        if T.is_time(one):
            return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        if (one.tz is None) == (other.tz is None):
            return pa.timestamp(unit, one.tz if one.tz == other.tz else "UTC")
    return None


_RULES: tuple[Callable[[pa.DataType, pa.DataType], pa.DataType | None], ...] = (
    _integers,
    _floats,
    _decimals,
    _texts,
    _binaries,
    _times,
)


# ------------------------------------------------------------------------------------------- conversion


def _converted(array: pa.Array, to: pa.DataType) -> pa.Array:
    kind = array.type
    if kind.equals(to):
        return array
    if T.is_null(kind):
        return pa.nulls(len(array), to)
    if T.is_dictionary(kind):
        return _converted(array.dictionary_decode(), to)
    if T.is_run_end_encoded(kind):
        return _converted(pc.run_end_decode(array), to)
    if isinstance(kind, pa.BaseExtensionType):
        return _converted(array.storage, to)
    if T.is_struct(kind) and T.is_struct(to):
        columns = [_converted(array.field(field.name), field.type) for field in to]
        return pa.StructArray.from_arrays(columns, fields=list(to), mask=array.is_null())
    if is_list(kind) and is_list(to):
        make = pa.LargeListArray if T.is_large_list(to) else pa.ListArray
        return make.from_arrays(
            _offsets(array, T.is_large_list(to)),
            _converted(array.flatten(), to.value_type),
            type=to,
            mask=array.is_null(),
        )
    if T.is_map(kind) and T.is_map(to):
        array = array.take(pa.array(range(len(array))))  # a copy without data under nulls
        return pa.MapArray.from_arrays(
            array.offsets,
            _converted(array.keys, to.key_type),
            _converted(array.items, to.item_type),
            type=to,
            mask=array.is_null(),
        )
    return casts.cast(array, to)


def _offsets(array: pa.Array, large: bool) -> pa.Array:
    """Return the offsets of an array's lists in the result of `flatten`, which omits values under nulls."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int64()))
    return pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int64() if large else pa.int32())
