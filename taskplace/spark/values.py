"""Converts Python values to Arrow columns, and back: the results of a function, or a key for a lookup.

**Idea.** Arrow converts almost any value: 1.5 becomes 1 in an integer column, a datetime becomes a date.
Here a value must be of the column's kind, and the column must hold it exactly.

| column | takes | refused, beside values out of range |
|---|---|---|
| integers | int | float and Decimal, also 2.0; bool |
| floats | float, as the nearest value; int, if exact | Decimal, bool; finite values that would become infinite |
| decimals | int, Decimal | float, bool; more fractional digits than the type has, also zeros if they are many |
| date | date | datetime |
| timestamp | datetime without a zone | datetime with a zone, date; a value finer than the unit |
| timestamp with a zone | datetime with any zone, or without: then it is UTC | date; a value finer than the unit |
| time of day, duration | time without a zone, timedelta | a value finer than the unit |
| list | list, tuple, array of numpy, of such values | bytes |
| map | dict, or a list of pairs, of such values | |
| struct | dict of such values | |

Properties:
- where possible, the type of a value decides, so that the answer is the same every day. So 2.0 is not an integer;
- numpy's numbers count as Python's, pandas' Timestamp and Timedelta as datetime and timedelta, and Arrow's scalars as
  their values; numpy's times are refused. None is null; NaT and NA are not;
- a time without a zone counts as UTC, as in casts of columns;
- O(values). Columns whose values all have the usual types are not checked value by value.

Errors: `InputError` with the column, the value, the type, and the remedy.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.casts import cast
from taskplace.spark.types import canonical

T = pa.types
_FAULTS = (pa.ArrowException, TypeError, ValueError, OverflowError)
#: By the bits of a decimal type, the greatest power of ten that Arrow has for it.
_POWERS = {32: 9, 64: 18, 128: 38, 256: 76}


class _Kind(NamedTuple):
    """A kind of columns: the types of its values, those among them that it does not take, and the remedy."""

    includes: Callable[[pa.DataType], bool]
    takes: tuple[type, ...]
    but: tuple[type, ...]
    remedy: str


_NUMBERS, _NONE_OF = (int, np.integer), (bool, np.timedelta64)
_KINDS = (
    _Kind(
        T.is_integer, _NUMBERS, _NONE_OF, "use int(value), or declare the column as float64 or decimal(p, s)"
    ),
    _Kind(
        T.is_floating, (*_NUMBERS, float, np.floating), _NONE_OF, "use float(value), or declare a wider type"
    ),
    _Kind(T.is_decimal, (*_NUMBERS, Decimal), _NONE_OF, "use value.quantize(...), or declare more digits"),
    _Kind(T.is_date, (dt.date,), (dt.datetime,), "use a date, such as value.date()"),
    _Kind(
        T.is_timestamp,
        (dt.datetime,),
        (),
        "use a datetime without a zone if the column has none, and in its unit",
    ),
    _Kind(T.is_time, (dt.time,), (), "use a time without a zone, and in the column's unit"),
    _Kind(T.is_duration, (dt.timedelta,), (), "use a timedelta in the column's unit"),
)
_OTHER = _Kind(lambda kind: True, (object,), (), "use a value of that type")


def table_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema, path: str) -> pa.Table:
    """Return the table of rows that are dicts; a column that a row lacks is null. O(rows).

    >>> table_of([{"n": 1.5}], pa.schema([("n", pa.int64())]), "state")
    Traceback (most recent call last):
    taskplace.errors.InputError: state.n: found 1.5, expected int64; use int(value), or declare the column as \
float64 or decimal(p, s)
    """
    rows = list(rows)
    for row in rows:
        if not isinstance(row, Mapping):
            raise InputError(path, found=row, expected=f"a dict with the columns {schema.names}")
    columns = []
    for field in schema:
        columns.append(_column([row.get(field.name) for row in rows], field.type, f"{path}.{field.name}"))
    return pa.table(columns, schema=schema)


def dicts_of(table: pa.Table, path: str, hint: str = "") -> list[dict[str, Any]]:
    """Return the rows as dicts. O(rows). Errors: `InputError` with `hint`, for the first value that Python cannot hold.

    >>> dicts_of(pa.table({"at": pa.array([2**58], pa.timestamp("us"))}), "rows", "use Arrow")
    Traceback (most recent call last):
    taskplace.errors.InputError: rows.at: found '11103-08-29 17:22:31.711744', expected values that Python can \
represent; use Arrow
    """
    try:
        return list(table.to_pylist())
    except (OverflowError, ValueError):
        for name in table.column_names:
            for row in range(table.num_rows):
                try:
                    table[name].slice(row, 1).to_pylist()
                except (OverflowError, ValueError):
                    raise InputError(
                        f"{path}.{name}",
                        found=python_of(table[name].slice(row, 1))[0],
                        expected="values that Python can represent",
                        hint=hint,
                    ) from None
        raise


def python_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's Python values. If Python does not have one of its times, all its times are Arrow's texts."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(column.cast(_with_texts(column.type)).to_pylist())


def _with_texts(kind: pa.DataType) -> pa.DataType:
    if T.is_temporal(kind):
        return pa.string()
    if T.is_struct(kind):
        return pa.struct([field.with_type(_with_texts(field.type)) for field in kind])
    if T.is_map(kind):
        return pa.map_(_with_texts(kind.key_type), _with_texts(kind.item_type))
    return pa.list_(_with_texts(kind.value_type)) if T.is_list(kind) or T.is_large_list(kind) else kind


def _column(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    """Return values as a column. Errors: `InputError` for one that it does not hold exactly."""
    try:
        made = _array(values, canonical(kind), path)
        return made if made.type.equals(kind) else made.cast(kind)
    except InputError:
        raise
    except _FAULTS as error:
        for value in values if len(values) > 1 else ():  # to name it
            _column([value], kind, path)
        raise InputError(
            path, found=values[0], expected=f"{kind} ({error})", hint=_rule(kind).remedy
        ) from None


def _plain(value: Any) -> Any:
    """Return the Python value of an Arrow scalar or a numpy integer."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    return int(value) if isinstance(value, np.integer) and not isinstance(value, np.timedelta64) else value


def _array(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    values = [*map(_plain, values)]
    if not T.is_nested(kind):
        return _flat(values, kind, path)
    nulls = pa.array([value is None for value in values], pa.bool_())
    if T.is_struct(kind):
        rows = [_of_type(value, Mapping, kind, path) for value in values]
        if unknown := set().union(*rows) - set(kind.names):
            raise InputError(path, found=f"unknown fields {sorted(map(str, unknown))}", expected=str(kind))
        parts = [
            _array([row.get(each.name) for row in rows], each.type, f"{path}.{each.name}") for each in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    if T.is_map(kind):
        pairs = [
            [*value.items()] if isinstance(value, Mapping) else _of_type(value, list | tuple, kind, path)
            for value in values
        ]
        entries = list(chain.from_iterable(pairs))
        keys = _array([key for key, _ in entries], kind.key_type, f"{path} (a key)")
        items = _array([item for _, item in entries], kind.item_type, f"{path} (a value)")
        return pa.MapArray.from_arrays(_offsets(pairs), keys, items, type=kind, mask=nulls)
    lists = [_of_type(value, list | tuple | np.ndarray, kind, path) for value in values]
    inner = _array(list(chain.from_iterable(lists)), kind.value_type, f"{path} (an element)")
    return pa.ListArray.from_arrays(_offsets(lists), inner, type=kind, mask=nulls)


def _of_type(value: Any, wanted: Any, kind: pa.DataType, path: str) -> Any:
    """Return a value of one of these types, or an empty dict for None, which has no parts."""
    if value is not None and not isinstance(value, wanted):
        raise InputError(path, found=value, expected=str(kind), hint=_rule(kind).remedy)
    return {} if value is None else value


def _offsets(lists: Sequence[Any]) -> pa.Array:
    return pa.array(np.cumsum([0, *map(len, lists)]), pa.int32())


def _flat(values: Sequence[Any], kind: pa.DataType, path: str) -> pa.Array:
    if set(map(type, values)) <= {*_exact(kind), type(None)}:
        with suppress(*_FAULTS):
            return pa.array(values, kind)
    rule = _rule(kind)
    try:
        for value in values:
            if value is not None and not _is_taken(value, kind, rule):
                raise InputError(path, found=value, expected=str(kind), hint=rule.remedy)
        made = _made(values, kind)
        for value, found in zip(values, made.to_pylist(), strict=True) if rule is not _OTHER else ():
            if value is not None and not _same(value, found, kind):
                raise InputError(path, found=value, expected=str(kind), hint=rule.remedy)
    except InputError:
        raise
    except _FAULTS as error:
        for value in values if len(values) > 1 else ():  # to name it
            _flat([value], kind, path)
        raise InputError(path, found=values[0], expected=f"{kind} ({error})", hint=rule.remedy) from None
    return made


def _exact(kind: pa.DataType) -> tuple[type, ...]:
    """Return the types of which Arrow converts each value exactly, or refuses it."""
    if T.is_integer(kind) or T.is_decimal(kind):
        return (int,)
    if T.is_timestamp(kind) and kind.tz is not None and kind.unit in ("us", "ns"):
        return (dt.datetime,)  # with any zone
    return (float, int) if T.is_float64(kind) else (dt.date,) if T.is_date(kind) else ()


def _rule(kind: pa.DataType) -> _Kind:
    return next((rule for rule in _KINDS if rule.includes(kind)), _OTHER)


def _is_taken(value: Any, kind: pa.DataType, rule: _Kind) -> bool:
    if not isinstance(value, rule.takes) or isinstance(value, rule.but):
        return False
    if not (T.is_decimal(kind) and isinstance(value, Decimal)):
        return True
    exponent = value.as_tuple().exponent
    # Arrow reads beyond its table of powers for a far exponent, and the process ends.
    return isinstance(exponent, int) and (not exponent or -exponent - kind.scale <= _POWERS[kind.bit_width])


def _made(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not T.is_floating(kind):
        return pa.array(values, kind)
    return cast(pa.array([None if value is None else float(value) for value in values], pa.float64()), kind)


def _same(value: Any, found: Any, kind: pa.DataType) -> bool:
    """Return whether a column gave a value back. A float may be the nearest one."""
    if T.is_timestamp(kind) and kind.tz is not None:
        value = (value.replace(tzinfo=dt.timezone.utc) if value.tzinfo is None else value).astimezone(
            dt.timezone.utc
        )
    return isinstance(value, float | np.floating) or bool(found == value)
