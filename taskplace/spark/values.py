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
| list, map, struct | list, tuple, dict ... of such values | bytes as a list of numbers |

Properties:
- where possible, the type of a value decides, so that the answer is the same every day. So 2.0 is not an integer;
- numpy's numbers count as Python's, pandas' Timestamp and Timedelta as datetime and timedelta, and Arrow's scalars as
  their values. None is null; NaT and NA are not;
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
from typing import Any

import numpy as np
import pyarrow as pa

from taskplace.errors import InputError

T = pa.types
_FAULTS = (pa.ArrowException, TypeError, ValueError, OverflowError)
#: By the bits of a decimal type, the greatest power of ten that Arrow has for it.
_POWERS = {32: 9, 64: 18, 128: 38, 256: 76}
#: The length of each unit, in microseconds.
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 1}
_NONE = type(None)


def table_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema, path: str) -> pa.Table:
    """Return the table of rows that are dicts; a column that a row lacks is null. O(rows).

    >>> table_of([{"n": 1.5}], pa.schema([("n", pa.int64())]), "state")
    Traceback (most recent call last):
    taskplace.errors.InputError: state.n: found 1.5, expected int64; use an int, such as int(value), or \
declare the column as float64 or decimal(p, s)
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


def _column(values: list[Any], kind: pa.DataType, path: str) -> pa.Array | pa.ChunkedArray:
    if any(issubclass(python_type, pa.Scalar | np.integer) for python_type in set(map(type, values))):
        values = [_plain(value, path) for value in values]
    _check(values, kind, path)
    try:
        return pa.array(values, kind)
    except _FAULTS:
        values = [_exact(value, kind) for value in values]
        for value in values:
            try:
                pa.array([value], kind)
            except _FAULTS as error:
                raise InputError(
                    path, found=value, expected=f"{kind} ({error})", hint=_remedy(kind)
                ) from None
        return pa.array(values, kind)


def _plain(value: Any, path: str) -> Any:
    """Return the Python value of an Arrow scalar or a numpy integer."""
    if isinstance(value, pa.Scalar):
        try:
            return value.as_py()
        except (OverflowError, ValueError):
            found = python_of(pa.array([value], value.type))[0]
            raise InputError(path, found=found, expected="a value that Python can represent") from None
    return int(value) if isinstance(value, np.integer) and not isinstance(value, np.timedelta64) else value


def _check(values: Sequence[Any], kind: pa.DataType, path: str) -> None:
    """Refuse values that Arrow would silently change to fit a column of this type."""
    if T.is_nested(kind):
        return _check_nested(values, kind, path)
    if T.is_dictionary(kind) or T.is_run_end_encoded(kind):
        return _check(values, kind.value_type, path)
    if isinstance(kind, pa.BaseExtensionType):
        return _check(values, kind.storage_type, path)
    usual, fits = _RULES.get(_family(kind), ((), None))
    if fits is None:
        return None
    # Check the types first: if all values have the usual types, they need not be checked one by one.
    if set(map(type, values)) <= {*usual, _NONE}:
        return None
    for value in values:
        if value is not None and not fits(value, kind):
            raise InputError(path, found=value, expected=str(kind), hint=_remedy(kind))
    return None


def _check_nested(values: Sequence[Any], kind: pa.DataType, path: str) -> None:
    """Check the values inside lists, maps and structs; Arrow itself refuses values that are none of these."""
    present = [value for value in values if value is not None]
    if T.is_struct(kind):
        members: dict[str | bytes, list[Any]] = {}
        names = [field.name for field in kind]
        for name, each in chain.from_iterable(_pairs(value, names) for value in present):
            if isinstance(name, str | bytes):
                members.setdefault(name, []).append(each)
        for field in kind:
            inner = [*members.get(field.name, ()), *members.get(field.name.encode(), ())]
            _check(inner, field.type, f"{path}.{field.name}")
    elif T.is_map(kind):
        entries = list(chain.from_iterable(map(_pairs, present)))
        _check([key for key, _ in entries], kind.key_type, f"{path} (a key)")
        _check([each for _, each in entries], kind.item_type, f"{path} (a value)")
    elif hasattr(kind, "value_type"):
        for value in present:
            if not _is_list(value, kind.value_type):
                raise InputError(path, found=value, expected=str(kind), hint=_remedy(kind))
        inner = [value for value in present if isinstance(value, Iterable) and not isinstance(value, str)]
        _check(list(chain.from_iterable(inner)), kind.value_type, f"{path} (an element)")


def _is_list(value: Any, kind: pa.DataType) -> bool:
    """Return whether Arrow makes a list with these values of a value, if it makes one."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "mM":  # taken as times in the column's unit
        return np.datetime_data(value.dtype) == (getattr(kind, "unit", ""), 1)
    if hasattr(value, "iloc"):  # a Series, which Arrow reads by its labels
        return np.array_equal(value.index, np.arange(len(value)))
    return not isinstance(value, bytes | bytearray | memoryview)  # taken as a list of numbers


def _pairs(value: Any, names: Sequence[str] = ()) -> list[tuple[Any, Any]]:
    """Return what Arrow takes from a value: the items of a mapping, pairs, of which a name may be there twice, or the
    values of `names` in their order."""
    if isinstance(value, Mapping):
        return list(value.items())
    pairs = list(zip(names, value, strict=False)) if isinstance(value, tuple) else []
    for pair in value if isinstance(value, Iterable) else ():
        with suppress(TypeError, ValueError):
            name, each = pair
            pairs.append((name, each))
    return pairs


def _family(kind: pa.DataType) -> str:
    if T.is_float64(kind):
        return "float64"
    if T.is_timestamp(kind) and kind.tz is not None and kind.unit in ("us", "ns"):
        return "instant"
    for name in ("integer", "floating", "decimal", "date", "timestamp", "time", "duration"):
        if getattr(T, f"is_{name}")(kind):
            return name
    return ""


def _is_int(value: Any) -> bool:
    whole = isinstance(value, int | np.integer)
    return whole and not isinstance(value, bool | np.timedelta64)


def _in_integers(value: Any, kind: pa.DataType) -> bool:
    return _is_int(value)


def _exact(value: Any, kind: pa.DataType) -> Any:
    """Return an integer that a float holds as that float, also inside of lists, maps and structs.

    Arrow refuses all integers beyond 2^53.
    """
    if T.is_floating(kind):
        return float(value) if type(value) is int and _in_floats(value, kind) else value
    if T.is_struct(kind) and isinstance(value, Mapping):
        inner = {field.name: _exact(value[field.name], field.type) for field in kind if field.name in value}
        return {**value, **inner}
    if T.is_map(kind) and isinstance(value, Mapping):
        return {_exact(key, kind.key_type): _exact(of, kind.item_type) for key, of in value.items()}
    if hasattr(kind, "value_type") and isinstance(value, list | tuple):
        return [_exact(each, kind.value_type) for each in value]
    return value


def _in_floats(value: Any, kind: pa.DataType) -> bool:
    if _is_int(value):
        with np.errstate(over="ignore"), suppress(OverflowError):
            return int(kind.to_pandas_dtype()(int(value))) == value
        return False
    if not isinstance(value, float | np.floating):
        return False
    with np.errstate(over="ignore"):
        return bool(np.isfinite(kind.to_pandas_dtype()(value)) or not np.isfinite(value))


def _in_decimals(value: Any, kind: pa.DataType) -> bool:
    if not isinstance(value, Decimal):
        return _is_int(value)
    exponent = value.as_tuple().exponent
    # Arrow reads beyond its table of powers for a far exponent, and the process ends.
    return isinstance(exponent, int) and -exponent - kind.scale <= _POWERS[kind.bit_width]


def _in_dates(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _in_timestamps(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, np.datetime64):  # Arrow refuses another unit, but not a multiple of it
        return not np.isnat(value) and np.datetime_data(value.dtype)[1] == 1
    if not isinstance(value, dt.datetime) or value != value:  # NaT
        return False
    return (value.tzinfo is None or kind.tz is not None) and _as_fine(value.microsecond, value, kind)


def _in_times(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, dt.time) and value.tzinfo is None and _as_fine(value.microsecond, value, kind)


def _in_durations(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, np.timedelta64):
        return not np.isnat(value) and np.datetime_data(value.dtype)[1] == 1
    return isinstance(value, dt.timedelta) and _as_fine(value.microseconds, value, kind)


def _as_fine(micros: int, value: Any, kind: pa.DataType) -> bool:
    """Return whether the column's unit holds these microseconds, and the nanoseconds of a pandas value."""
    nanos = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    return micros % _MICROS[kind.unit] == 0 and (kind.unit == "ns" or not nanos)


#: By family: the types whose values Arrow converts exactly or refuses, and the rule for values of other types.
_RULES: Mapping[str, tuple[tuple[type, ...], Callable[[Any, pa.DataType], bool]]] = {
    "integer": ((int,), _in_integers),
    "float64": ((int, float), _in_floats),
    "floating": ((), _in_floats),
    "decimal": ((int,), _in_decimals),
    "date": ((dt.date,), _in_dates),
    "timestamp": ((), _in_timestamps),
    "instant": ((dt.datetime,), _in_timestamps),  # with any zone, to the microsecond
    "time": ((), _in_times),
    "duration": ((), _in_durations),
}


#: By family: what to use instead of a value that a column does not hold.
_REMEDIES = {
    "integer": "use an int, such as int(value), or declare the column as float64 or decimal(p, s)",
    "floating": "use a float, such as float(value), which is the nearest, or declare a wider type",
    "decimal": "use an int or a Decimal, with value.quantize(...) for fewer digits, or declare more digits",
    "date": "use a date, such as value.date() of a datetime",
    "timestamp": "use a datetime, without a zone if the column has none, and not finer than its unit",
    "time": "use a time without a zone, not finer than the column's unit",
    "duration": "use a timedelta, not finer than the column's unit",
}


def _remedy(kind: pa.DataType) -> str:
    family = {"float64": "floating", "instant": "timestamp"}.get(name := _family(kind), name)
    return _REMEDIES.get(family, "use a value of that type")
