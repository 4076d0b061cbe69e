"""Names of column types and their Arrow types, for stores, processors and sinks.

Known names are `ALIASES`, Spark's names of small integers, Arrow's own names, `decimal(p, s)`, and, made of these,
`list<...>`, `map<..., ...>` and `struct<name: ..., ...>`. A store keeps flat types only; a sink takes all types.
"""

from __future__ import annotations

import re

import pyarrow as pa

from taskplace.spark.state.type_text import Tokens, name_of

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
_WORDS = re.compile(r"\s*(`(?:[^`]|``)*`|[<>(),:]|[^\s<>(),:`\[]+(?:\[[^\]]*\])?|\S)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\]]+)\]")
_DECIMALS = ("decimal", "decimal128", "numeric")
_LISTS = ("list", "array")


def parse(written: str) -> pa.DataType:
    """Return the Arrow type of a name. Errors: `TypeTextError`, a `ValueError`, with the place inside the type.

    >>> parse("decimal(9, 2)"), parse("map<string, list<timestamp>>")
    (Decimal128Type(decimal128(9, 2)), MapType(map<string, list<item: timestamp[us, tz=UTC]>>))
    >>> parse("struct<a: list<innt>>")
    Traceback (most recent call last):
    taskplace.spark.state.type_text.TypeTextError: in a.element: found 'innt', expected a type; did you mean 'int'?
    """
    tokens = Tokens(written, _WORDS)
    found = _type(tokens)
    tokens.finish()
    return found


def _type(tokens: Tokens) -> pa.DataType:
    name = tokens.take()
    lower = name.lower()
    if lower in _DECIMALS:
        return pa.decimal128(*tokens.decimal(any_scale=True))
    if lower in _LISTS:
        tokens.expect("<")
        element = _part(tokens, "element")
        tokens.expect(">")
        return pa.list_(element)
    if lower == "map":
        tokens.expect("<")
        key = _part(tokens, "key")
        tokens.expect(",")
        value = _part(tokens, "value")
        tokens.expect(">")
        return pa.map_(key, value)
    if lower == "struct":
        return _struct(tokens)
    kind = _KNOWN.get(name) or _KNOWN.get(lower)
    if kind is not None:
        return kind
    if zoned := _ZONED.fullmatch(name):
        return pa.timestamp(zoned[1], zoned[2])
    try:
        return pa.type_for_alias(lower)
    except ValueError:
        raise tokens.unknown(name, (*USUAL, *_DECIMALS, *_LISTS, "map", "struct")) from None


def _part(tokens: Tokens, name: str) -> pa.DataType:
    with tokens.inside(name):
        if name == "element" and tokens.peek() == "item":  # as Arrow writes lists
            tokens.take()
            tokens.expect(":")
        return _type(tokens)


def _struct(tokens: Tokens) -> pa.DataType:
    tokens.expect("<")
    fields = []
    while True:
        if tokens.peek() in ("", "<", ">", "(", ")", ",", ":"):
            raise tokens.unexpected("the name of a field")
        name = name_of(tokens.take())
        tokens.expect(":")
        fields.append(pa.field(name, _part(tokens, name)))
        if tokens.peek() != ",":
            tokens.expect(",", ">")
            return pa.struct(fields)
        tokens.take()
