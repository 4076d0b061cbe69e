"""The column types of staged files, which Parquet can store and Spark can read, and their names as text.

Idea: every Spark must be able to read what is staged for a sink. `readable` returns the type as which a column of any
Arrow type is staged. `text` returns the name of such a type in declarations, manifests and errors, and
`taskplace.spark.types.parse` reads it.

| Arrow | staged as |
|---|---|
| boolean, int8 to int64, float32, float64, string, binary, date32 | the same |
| uint8, uint16, uint32; uint64 | int16, int32, int64; decimal(20, 0) |
| float16 | float |
| large and view forms of string and binary, binary of fixed size | string, binary |
| date64 | date |
| timestamps of any unit, with and without a zone | timestamp (UTC), timestamp_ntz: microseconds |
| decimals of at most 38 digits | decimal(p, s) |
| dictionary, run-end encoded, extension types | the type of their values |
| lists, maps, structs with fields | the same, of such types |
| null | null: no type yet |

Refused: times of day, durations, intervals, unions, decimals of more digits, structs without fields; variants and
geometries, which would be stored as structs of their encoding.

>>> text(readable(pa.dictionary(pa.int32(), pa.large_string()))), text(readable(pa.uint64()))
('string', 'decimal(20, 0)')
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from taskplace.spark.casts import is_list, plain
from taskplace.spark.types import MARKS
from taskplace.validation import has_surrogates

T = pa.types
DIGITS = 38
_STAGED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_SAME = {
    *(pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32()),
}


class Unreadable(ValueError):
    """A type that Parquet cannot store, or Spark cannot read; the message has the remedy."""


def readable(kind: pa.DataType) -> pa.DataType:
    """Return the type as which a column of this type is staged. Errors: `Unreadable`."""
    kind = plain(kind)
    if kind in _SAME:
        return kind
    if kind in _STAGED:
        return _STAGED[kind]
    if T.is_large_string(kind) or T.is_string_view(kind):
        return pa.string()
    if T.is_large_binary(kind) or T.is_binary_view(kind) or T.is_fixed_size_binary(kind):
        return pa.binary()
    if T.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if T.is_decimal(kind):
        scale = max(kind.scale, 0)
        digits = max(kind.precision - kind.scale + scale, scale)
        if digits > DIGITS:
            raise Unreadable(
                f"Spark's decimals have at most {DIGITS} digits: cast the column to fewer digits, or to string"
            )
        return pa.decimal128(digits, scale)
    if is_list(kind):
        return pa.list_(readable(kind.value_type))
    if T.is_map(kind):
        return pa.map_(readable(kind.key_type), readable(kind.item_type))
    if T.is_struct(kind):
        _check_marks(kind)
        check_names([field.name for field in kind], "a struct's fields")
        return pa.struct([(field.name, readable(field.type)) for field in kind])
    raise Unreadable(f"Spark cannot read {kind} from Parquet: cast the column to int64 or string")


def _check_marks(kind: pa.StructType) -> None:
    """Refuse a struct that is the encoding of a variant or a geometry. Errors: `Unreadable`."""
    marks = {mark for field in kind for mark in MARKS if mark in (field.metadata or {})}
    if marks:
        what = marks.pop().decode()
        cast = (
            "cast it to string, or take its fields with variant_get"
            if what == "variant"
            else "use ST_AsBinary"
        )
        raise Unreadable(f"a {what} would be stored as a struct of its encoding: {cast}, in the source")


def check_names(names: Sequence[str], what: str = "columns") -> None:
    """Refuse names that are equal for Spark. Errors: `Unreadable`."""
    if not names:
        raise Unreadable(f"{what}: none; Parquet cannot store rows without columns")
    seen: dict[str, str] = {}
    for name in names:
        if has_surrogates(name):
            raise Unreadable(f"{what}: the name {name!r} has surrogates (halves of characters): rename it")
        if (other := seen.setdefault(name.lower(), name)) != name or names.count(name) > 1:
            raise Unreadable(
                f"{what} {other!r} and {name!r}, which Spark treats as one name: rename one of them"
            )


def untyped(kind: pa.DataType) -> bool:
    """Return whether a type, or a part of it, is unknown (null)."""
    if is_list(kind):
        return untyped(kind.value_type)
    if T.is_map(kind):
        return untyped(kind.key_type) or untyped(kind.item_type)
    if T.is_struct(kind):
        return any(untyped(field.type) for field in kind)
    return bool(T.is_null(kind))


def text(kind: pa.DataType) -> str:
    """Return the name of a type that `readable` returned."""
    if T.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if T.is_date32(kind):
        return "date"
    if T.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if is_list(kind):
        return f"list<{text(kind.value_type)}>"
    if T.is_map(kind):
        return f"map<{text(kind.key_type)}, {text(kind.item_type)}>"
    if T.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {text(field.type)}' for field in kind)}>"
    return str(kind)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"
