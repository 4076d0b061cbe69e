"""Names of column types and their Arrow types, for stores, processors and sinks.

Known names are `ALIASES`, Spark's names of small integers, Arrow's own names, `decimal(p, s)`, and, made of these,
`list<...>`, `map<..., ...>` and `struct<name: ..., ...>`. A store keeps flat types only; a sink takes all types.

Spark's types that no store and no sink has (intervals, times of day, variants, ...) have no name here. `of_spark` reads
them as well: a source may have them.
"""

from __future__ import annotations

import re

import pyarrow as pa

from taskplace.spark.types import Tokens, name_of

#: Names that Arrow does not have, or that have another meaning here.
ALIASES = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
}
#: The usual names, for the hint with the nearest one.
USUAL = (
    *ALIASES,
    "string",
    "binary",
    "bool",
    "double",
    "float",
    "int8",
    "int16",
    "int32",
    "int64",
    "float64",
    "decimal(9, 2)",
)
_KNOWN = {
    **ALIASES,
    "timestamp_ntz": pa.timestamp("us"),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
}


#: In a word of Arrow's may stand more in brackets: `timestamp[us, tz=UTC]`.
_WORDS = re.compile(r"\s*+(`(?:[^`]|``)*`|[<>(),:]|[^\s<>(),:`\[]+(?:\[[^\]]*\])?|\S)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\]]+)\]")
_DECIMALS = ("decimal", "decimal128", "numeric")
_LISTS = ("list", "array")
#: The key in the metadata of a struct's field that marks the struct as a value of Spark's: a variant, a geometry.
MARKS = (b"variant", b"geometry", b"geography")
_UNITS = ("year", "month", "day", "hour", "minute", "second")


def _marked(mark: bytes, first: pa.Field, last: str) -> pa.DataType:
    return pa.struct([first, pa.field(last, pa.binary(), nullable=False, metadata={mark: b"true"})])


#: As Spark passes them to Python workers.
_MARKED = {
    "variant": _marked(b"variant", pa.field("value", pa.binary(), nullable=False), "metadata"),
    "geometry": _marked(b"geometry", pa.field("srid", pa.int32(), nullable=False), "wkb"),
    "geography": _marked(b"geography", pa.field("srid", pa.int32(), nullable=False), "wkb"),
}


def parse(written: str) -> pa.DataType:
    """Return the Arrow type of a name. Errors: `TypeTextError`, a `ValueError`, with the place inside the type.

    >>> parse("decimal(9, 2)"), parse("map<string, list<timestamp>>")
    (Decimal128Type(decimal128(9, 2)), MapType(map<string, list<item: timestamp[us, tz=UTC]>>))
    >>> parse("struct<a: list<innt>>")
    Traceback (most recent call last):
    taskplace.spark.types.TypeTextError: in a.element: found 'innt', expected a type; did you mean 'int'?
    """
    return _parsed(written, of_spark=False)


def of_spark(written: str) -> pa.DataType:
    """Return the type in which a task gets a column, from the type's name in Spark (`simpleString`) or in Arrow.

    Errors: as `parse`.

    >>> of_spark("array<interval day to second>"), of_spark("struct<>"), of_spark("time(6)")
    (ListType(list<item: duration[us]>), StructType(struct<>), Time64Type(time64[ns]))
    """
    return _parsed(written, of_spark=True)


def _parsed(written: str, *, of_spark: bool) -> pa.DataType:
    tokens = Tokens(written, _WORDS)
    kind = _type(tokens, of_spark)
    tokens.finish()
    return kind


def _type(tokens: Tokens, of_spark: bool) -> pa.DataType:
    name = tokens.take()
    lower = name.lower()
    if of_spark and (spark_kind := _sparks_own(tokens, lower)) is not None:
        return spark_kind
    if lower in _DECIMALS:
        return pa.decimal128(*tokens.decimal(any_scale=True))
    if lower in _LISTS:
        tokens.expect("<")
        element = _part(tokens, "element", of_spark)
        tokens.expect(">")
        return pa.list_(element)
    if lower == "map":
        tokens.expect("<")
        key = _part(tokens, "key", of_spark)
        tokens.expect(",")
        value = _part(tokens, "value", of_spark)
        tokens.expect(">")
        return pa.map_(key, value)
    if lower == "struct":
        return _struct(tokens, of_spark)
    kind = _KNOWN.get(name) or _KNOWN.get(lower)
    if kind is not None:
        return kind
    if zoned := _ZONED.fullmatch(name):
        return pa.timestamp(zoned[1], zoned[2])
    try:
        return pa.type_for_alias(lower)
    except ValueError:
        raise tokens.unknown(name, (*USUAL, *_DECIMALS, *_LISTS, "map", "struct")) from None


def _sparks_own(tokens: Tokens, name: str) -> pa.DataType | None:
    """Return a type that only Spark has, or None; the name is taken already."""
    if name == "void":
        return pa.null()
    if name in ("time", *_MARKED):
        if tokens.peek() == "(":
            tokens.expect("(")
            tokens.take()
            tokens.expect(")")
        return _MARKED.get(name, pa.time64("ns"))
    if name == "string" and tokens.peek().lower() == "collate":
        tokens.take()
        tokens.take()
        return pa.string()
    if name == "interval":
        unit = tokens.take().lower() if tokens.peek().lower() in _UNITS else ""
        if unit and tokens.peek().lower() == "to":
            tokens.take()
            tokens.take()
        return pa.month_day_nano_interval() if unit in ("", "year", "month") else pa.duration("us")
    return None


def _part(tokens: Tokens, name: str, of_spark: bool) -> pa.DataType:
    with tokens.inside(name):
        if name == "element" and tokens.peek() == "item":  # as Arrow writes lists
            tokens.take()
            tokens.expect(":")
        return _type(tokens, of_spark)


def _struct(tokens: Tokens, of_spark: bool) -> pa.DataType:
    tokens.expect("<")
    fields: list[pa.Field] = []
    if of_spark and tokens.peek() == ">":
        tokens.take()
        return pa.struct(fields)
    while True:
        if tokens.peek() in ("", "<", ">", "(", ")", ",", ":"):
            raise tokens.unexpected("the name of a field")
        name = name_of(tokens.take())
        tokens.expect(":")
        fields.append(pa.field(name, _part(tokens, name, of_spark)))
        if tokens.peek() != ",":
            tokens.expect(",", ">")
            return pa.struct(fields)
        tokens.take()
