"""Casts columns without loss, decides which casts keep different values different, or in order, and unites tables.

**Idea of `cast`.** Arrow checks most casts, but not all: it turns 1e300 into infinity as float32, 2 into true, and a
timestamp into a time of day. Texts as decimals, and decimals with more fractional digits, it takes modulo 2^128; a text
with a far exponent ends the process. It also refuses integers that a float does hold, such as 2^60 in a float64. Here a
value that the type cannot hold is an error, and no other, for any two types. A conversion that the type itself asks for
is not a loss: a float takes the nearest value of a float, decimal or text, a decimal rounds a float to its digits, a
date takes the day of a timestamp in UTC, and a text is parsed ("07" as an integer is 7).

**Numbers in texts** have one grammar, for casts and for decimals in JSON (`NUMBER`): a sign or none, ASCII digits with
a point or none, and `e` with a whole number or nothing, as in `-1.5`, `.5`, `+7`, `2e-3`. An integer has no point and
no `e`. A float may be `nan`, `inf` or `infinity`, with a sign, in upper or lower case. Nothing else is a number:
`1_000`, ` 1`, `0x10`, the empty text, digits of other scripts.

**Idea of `keeps_apart`.** Rows are split over tasks by columns with the types of the input, and state is kept by a key
with declared types. All rows of one key are in one task only if the cast never merges different values: `int32` to
`int64` does not, text to a number does ("7" and "07"), a timestamp to a date does.

**Idea of `keeps_order`.** Rows that are ordered by a stored column are compared in the type of the store. Their order
is lost if the cast takes the nearest value or the day, and if numbers become texts ("10" is before "9").

Properties:
- the checked casts of `RowCodec` are considered. A cast that refuses values (`int64` to `int32`, decimals to
  fewer fractional digits, timestamps to a coarser unit) fails for such a value instead of merging it;
- all NaN are one value, and so are 0.0 and -0.0: they have the same hash and the same key;
- a time zone only changes how an instant is shown: a cast to another zone, or to none, merges nothing;
- a pair of types that is not listed counts as merging. So does float to integer, which holds only some values.

**Idea of `common`, `united`, `concat`.** Tasks, parents of a merge, and batches may give one column different
types for the same values: int32 and int64, a text and its dictionary, or no type at all (a column with only nulls).
`common` returns the type that holds all values of both; `united` does that for whole schemas, and `concat` for tables.

Properties:
- Types decide, never values, so the answer is the same for every batch. Only a time that its finer
  unit cannot hold is refused by its value.
- Columns are matched by name; the first table gives the order. A column that one table lacks is an error, not a null.
- Kinds of types are never mixed: integers and floats, numbers and texts, dates and timestamps, or timestamps
  with and without a time zone have no common type.

Non-goals: what a sink may hold (`taskplace.spark.worker.schemas`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as of

from taskplace.errors import InputError
from taskplace.spark.types import canonical

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)
#: A number in a text, for Python's `re` and for Arrow.
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_INTEGER = "[+-]?[0-9]+"
_FLOAT = f"{NUMBER}|[+-]?(?i:nan|inf|infinity)"
#: The digits of Arrow's widest decimal: a product of 38 digits and 10^38 does not wrap in it.
_DIGITS = 76
_EXACT = Context(prec=_DIGITS, traps=[InvalidOperation, Inexact])

_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
PANDAS = "integers with a null among them come out of pandas as float64: use pd.Int64Dtype(), or fillna"
#: Values of one kind have a common type, values of different kinds have none.
_KINDS = (
    *(of.is_integer, of.is_floating, of.is_decimal, of.is_date, of.is_timestamp, of.is_time, of.is_duration),
)


def cast(column: Column, kind: pa.DataType) -> Column:
    """Return a column as another type. O(rows).

    Errors: Arrow's, for a value that the type does not hold, and for types between which there is no cast.

    >>> cast(pa.array([1.5, None]), pa.float32()).to_pylist()
    [1.5, None]
    >>> cast(pa.array([1e300]), pa.float32())
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: 1e+300 is beyond what float holds
    """
    if of.is_null(column.type):
        return column.cast(kind)
    if of.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if of.is_time(kind) and of.is_temporal(column.type) and not of.is_time(column.type):
        raise pa.ArrowNotImplementedError(f"{column.type} has a date, {kind} has none")
    if _is_wide_float(column.type) and _is_text(kind):
        column = pc.add(column, pa.scalar(0, column.type))  # -0.0 is 0.0, as text too
    if _is_text(column.type) and (of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind)):
        column = _numbers(column, kind)
    if of.is_decimal(kind):
        return _as_decimal(column, kind)
    if of.is_decimal(column.type) and of.is_integer(kind):
        column = _as_decimal(column, pa.decimal256(_DIGITS, 0))
    if of.is_timestamp(column.type) and of.is_date(kind):
        # The day in UTC, for any zone of the column. From coarser units, Arrow takes the days modulo 2^32.
        column = column.cast(pa.timestamp("ns" if column.type.unit == "ns" else "us", tz="UTC"))
    if of.is_integer(column.type) and of.is_floating(kind):
        return _as_float(column, kind)
    if of.is_float16(kind) and (of.is_decimal(column.type) or _is_text(column.type)):
        raise pa.ArrowNotImplementedError(f"{column.type} is not cast to {kind}: Arrow rounds it twice")
    # Of a decimal, Arrow's float is not always the nearest; of its text, it is.
    near = of.is_decimal(column.type) and of.is_floating(kind)
    made = (column.cast(pa.string()) if near else column).cast(kind)
    if of.is_floating(kind):
        _refuse(column, _overflown(column, made), f"is beyond what {kind} holds")
    elif of.is_boolean(kind) and not _is_text(column.type):
        _refuse(column, pc.not_equal(made.cast(column.type), column), f"is neither true nor false, as {kind}")
    elif _is_text(kind) and (of.is_timestamp(column.type) or of.is_date(column.type)):
        # Beyond the year 32,767, Arrow has a text for it, and with a zone a wrong time.
        zoned = of.is_timestamp(column.type) and column.type.tz is not None
        texts = column.cast(pa.timestamp(column.type.unit)).cast(pa.string()) if zoned else made
        _refuse(texts, pc.starts_with(texts, "<"), f"has no text, as {column.type}")
    return made


def _numbers(column: Column, kind: pa.DataType) -> Column:
    """Return texts, or bytes, as texts of numbers that Arrow parses as `kind`. Errors: for a text that is no number."""
    texts = (
        column if of.is_string(column.type) or of.is_large_string(column.type) else column.cast(pa.string())
    )
    what = _INTEGER if of.is_integer(kind) else _FLOAT if of.is_floating(kind) else NUMBER
    _refuse(texts, pc.invert(pc.match_substring_regex(texts, f"^(?:{what})$")), f"is not a number, as {kind}")
    return pc.utf8_ltrim(texts, "+") if of.is_integer(kind) else texts


def _as_decimal(column: Column, kind: pa.DataType) -> Column:
    """Return numbers, or their texts from `_numbers`, as decimals.

    Arrow's products wrap, its powers of ten end at the digits of a type, and its quotients are wrong near 2^64: it then
    says that digits are lost. What may be concerned is computed in Python.
    """
    given, wide = column.type, pa.decimal256(_DIGITS, max(kind.scale, 0))
    if of.is_integer(given):
        return _as_decimal(column.cast(pa.decimal128(20, 0)), kind)
    if (of.is_floating(given) and kind.scale < 0) or abs(kind.scale) > _DIGITS:
        raise pa.ArrowNotImplementedError(f"{given} is not cast to {kind}")
    if not of.is_decimal(given) and not _is_text(given):
        return _narrowed(column.cast(wide), kind)
    with suppress(pa.ArrowInvalid):
        if of.is_decimal(given):
            more = kind.scale - given.scale
            if given.bit_width == kind.bit_width == 128 and -38 <= more <= 38 - given.precision:
                return column.cast(kind)
            if -_DIGITS <= more <= _DIGITS - given.precision:
                return _narrowed(column.cast(pa.decimal256(_DIGITS, given.scale)), kind)
        else:
            long = pc.greater(pc.binary_length(column), _DIGITS - wide.scale)
            if not pc.any(pc.or_(long, pc.match_substring(column, "e", ignore_case=True))).as_py():
                return _narrowed(column.cast(wide), kind)
    texts = pa.array(
        [None if value is None else _plain(value, kind) for value in column.to_pylist()], pa.string()
    )
    return _narrowed(
        (pa.chunked_array([texts]) if isinstance(column, pa.ChunkedArray) else texts).cast(wide), kind
    )


def _plain(value: Decimal | str, kind: pa.DataType) -> str:
    """Return a number without exponent, with the digits of a decimal type. Errors: if the type does not hold it."""
    try:
        return f"{_EXACT.quantize(Decimal(value), Decimal((0, (1,), -max(kind.scale, 0)))):f}"
    except DecimalException:
        raise pa.ArrowInvalid(f"{str(value)[:100]} is not a value of {kind}") from None


def _narrowed(column: Column, kind: pa.DataType) -> Column:
    column = column.cast(pa.decimal256(_DIGITS, kind.scale))
    if kind.bit_width < 128:  # Arrow narrows these before it counts the digits
        column = column.cast(pa.decimal128(kind.precision, kind.scale))
    return column.cast(kind)


def _as_float(column: Column, kind: pa.DataType) -> Column:
    """Return integers as floats. Arrow judges whole ranges; here each value is judged that is beyond them.

    To halves it casts without a check.
    """
    if not of.is_float16(kind):
        with suppress(pa.ArrowInvalid):
            return column.cast(kind)
    made = column.cast(kind, safe=False)
    wide = made.cast(pa.float64())
    end = 2.0 ** (column.type.bit_width - of.is_signed_integer(column.type))
    inside = pc.less(wide, end)
    back = pc.if_else(inside, wide, 0.0).cast(column.type)
    _refuse(column, pc.or_(pc.invert(inside), pc.not_equal(back, column)), f"is not a value of {kind}")
    return made


def _refuse(column: Column, lost: Column, why: str) -> None:
    """Raise `pa.ArrowInvalid` with the first value that `lost` marks."""
    if pc.any(lost).as_py():
        value = column.filter(lost)[0]
        raise pa.ArrowInvalid(f"{str(value.as_py())[:100]} {why}")


def _overflown(column: Column, made: Column) -> Column:
    """Return which values became infinite by the cast."""
    wide = made.cast(pa.float32()) if of.is_float16(made.type) else made
    infinite = pc.is_inf(wide)
    if not pc.any(infinite).as_py():
        return infinite
    if of.is_floating(column.type):
        was = column.cast(pa.float32()) if of.is_float16(column.type) else column
        return pc.and_(infinite, pc.is_finite(was))
    if not _is_text(column.type):
        return infinite
    texts = column.cast(pa.string()).to_pylist()
    said = [text is not None and _INFINITY.fullmatch(text) is not None for text in texts]
    return pc.and_not(infinite, pa.array(said))


def keeps_apart(given: pa.DataType, kept: pa.DataType) -> bool:
    """Return whether a cast of `given` to `kept` never merges two different values.

    >>> keeps_apart(pa.int32(), pa.int64()), keeps_apart(pa.string(), pa.int64())
    (True, False)
    >>> keeps_apart(pa.timestamp("us"), pa.timestamp("us", tz="UTC")), keeps_apart(pa.timestamp("us"), pa.date32())
    (True, False)
    """
    given = canonical(given)
    if given == kept:
        return True
    if _is_text(given):
        return _is_text(kept)  # bytes as text are checked, and do not change
    if of.is_boolean(given):
        return of.is_integer(kept) or _is_wide_float(kept) or _is_text(kept)
    if of.is_integer(given):
        return not of.is_boolean(kept) and not of.is_float16(kept) and not of.is_nested(kept)
    if of.is_decimal(given):
        return of.is_decimal(kept) or of.is_integer(kept) or _is_text(kept)
    if of.is_floating(given):
        return (of.is_floating(kept) and given.bit_width <= kept.bit_width) or (
            _is_wide_float(given) and _is_text(kept)
        )
    if of.is_date(given):
        shown = of.is_date32(given) and _is_text(kept)
        return of.is_date(kept) or of.is_timestamp(kept) or of.is_integer(kept) or shown
    if of.is_timestamp(given):
        # In other zones, one hour in autumn occurs twice, and old offsets have seconds that the text does not show.
        shown = given.tz in (None, "UTC") and _is_text(kept)
        return of.is_timestamp(kept) or of.is_integer(kept) or shown
    if of.is_time(given):
        return of.is_time(kept) or of.is_integer(kept) or _is_text(kept)
    return of.is_duration(given) and (of.is_duration(kept) or of.is_integer(kept))


def keeps_order(given: pa.DataType, kept: pa.DataType) -> bool:
    """Return whether values of `given` that `cast` takes have the same order, none equal to another, as `kept`.

    A text is parsed, so its order is that of the parsed values. Times as texts count as ordered: up to the year 9999,
    they are.

    >>> keeps_order(pa.int32(), pa.int64()), keeps_order(pa.string(), pa.int64()), keeps_order(pa.int64(), pa.string())
    (True, True, False)
    >>> keeps_order(pa.timestamp("us"), pa.timestamp("us", tz="UTC")), keeps_order(pa.timestamp("us"), pa.date32())
    (True, False)
    """
    given = canonical(given)
    if _is_text(given):
        return not of.is_floating(kept)
    if _is_text(kept):
        return of.is_temporal(given) and keeps_apart(given, kept)
    if of.is_date(kept):
        return not of.is_timestamp(given)
    if of.is_decimal(kept):
        return not of.is_floating(given)
    if of.is_floating(kept):
        return keeps_apart(given, kept) and not of.is_decimal(given)
    return True


def _is_text(kind: pa.DataType) -> bool:
    """Return whether the values are texts or bytes, in any layout but a dictionary."""
    return bool(of.is_string(plain := canonical(kind)) or of.is_binary(plain)) and not of.is_dictionary(kind)


def _is_wide_float(kind: pa.DataType) -> bool:
    return bool(of.is_float32(kind) or of.is_float64(kind))


def common(one: pa.DataType, other: pa.DataType, *, grow: bool = True) -> pa.DataType | None:
    """Return the narrowest type that holds all values of both; None if there is none.

    Without `grow` the result must be `one`, except for parts of it that have no type yet.

    >>> common(pa.int32(), pa.int64()), common(pa.int64(), pa.float64()), common(pa.null(), pa.string())
    (DataType(int64), None, DataType(string))
    >>> common(pa.int32(), pa.int64(), grow=False), common(pa.int64(), pa.int32(), grow=False)
    (None, DataType(int64))
    """
    if of.is_null(one) or of.is_null(other):
        return other if of.is_null(one) else one
    if one.equals(other):
        return one
    one, other = canonical(one), canonical(other)
    if one.equals(other):
        return one
    if of.is_list(one) and of.is_list(other):
        inner = common(one.value_type, other.value_type, grow=grow)
        return inner and pa.list_(inner)
    if of.is_struct(one) and of.is_struct(other):
        return _struct(one, other, grow)
    if of.is_map(one) and of.is_map(other):
        key = common(one.key_type, other.key_type, grow=grow)
        item = common(one.item_type, other.item_type, grow=grow)
        return key and item and pa.map_(key, item)
    merged = _flat(one, other)
    return merged if grow or merged is None or merged.equals(one) else None


def _flat(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the common type of two that are not nested. Arrow would have int64 for a signed integer and a uint64."""
    if not any(is_kind(one) and is_kind(other) for is_kind in _KINDS):
        return None
    if pa.uint64() in (one, other) and (of.is_signed_integer(one) or of.is_signed_integer(other)):
        return None
    if of.is_date(one):
        return pa.date32()
    if of.is_timestamp(one) and one.tz != other.tz:
        if None in (one.tz, other.tz):
            return None
        one, other = (pa.timestamp(kind.unit, "UTC") for kind in (one, other))
    schemas = [pa.schema([("column", kind)]) for kind in (one, other)]
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError):  # decimals of more than 76 digits
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    return None


def _struct(one: pa.StructType, other: pa.StructType, grow: bool) -> pa.DataType | None:
    names = [field.name for field in one]
    if len(set(names)) != len(names) or sorted(names) != sorted(field.name for field in other):
        return None
    fields = [(name, common(one.field(name).type, other.field(name).type, grow=grow)) for name in names]
    return pa.struct(fields) if all(kind is not None for _, kind in fields) else None


def converted(column: pa.ChunkedArray, to: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type. O(bytes) if the types differ; a value that the type cannot hold is an error.

    Errors: `pa.ArrowException`.
    """
    if column.type.equals(to):
        return column
    return column.cast(to) if of.is_nested(column.type) else cast(column, to)


def canonical_rows(rows: pa.Table, node: str) -> pa.Table:
    """Return the rows that a node has made with the same values in columns of `canonical` types.

    O(bytes of the columns that are converted). Errors: `InputError` naming the node and the column, for a type from
    which Arrow cannot select rows, such as a union of views.
    """
    for place, field in enumerate(rows.schema):
        kind = canonical(field.type)
        if kind.equals(field.type) and not of.is_nested(kind):
            continue
        try:
            if not kind.equals(field.type):
                column = converted(rows.column(place), kind)
                rows = rows.set_column(place, field.with_type(kind), column)
            rows.column(place).slice(0, 0).take(pa.array([], pa.int64()))
        except pa.ArrowException as error:
            raise InputError(
                f"node {node!r}, column {field.name!r}",
                found=f"{field.type} ({error})",
                expected="a type from which Arrow can select rows",
                hint="cast the column in the processor, for example to string or binary",
            ) from None
    return rows


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
                    hint=cast_hint(before, kind) + more,
                )
            if not merged.equals(before):
                types[column], said[column] = merged, other
    return pa.schema(list(types.items()))


def cast_hint(*kinds: pa.DataType) -> str:
    """Return the remedy for types that have no common type."""
    numbers = {of.is_integer(kind) or of.is_floating(kind) for kind in kinds} == {True}
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
