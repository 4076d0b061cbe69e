"""Spark's written schemas (DDL), read without Spark.

**Idea.** Spark's own parser needs a JVM. To judge a declared schema before anything starts, its types are read here,
into the classes of `pyspark.sql.types`. Rare types (`interval`, `variant`, ...), and a timestamp that is written
`with` or `without time zone`, count as not known.

Properties: names of types in any case; `varchar(n)` and `char(n)` are read as text, as Spark's readers do; what follows
a type (`NOT NULL`, `COMMENT`, `COLLATE`, ...) is skipped.

Errors: `TypeTextError` with the place inside the type, what was found there, and the nearest known type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import types as spark

from taskplace.spark.types import WORDS, Tokens, TypeTextError, name_of

_SIMPLE: dict[str, type[spark.DataType]] = {
    "boolean": spark.BooleanType,
    **dict.fromkeys(("byte", "tinyint"), spark.ByteType),
    **dict.fromkeys(("short", "smallint"), spark.ShortType),
    **dict.fromkeys(("int", "integer"), spark.IntegerType),
    **dict.fromkeys(("long", "bigint"), spark.LongType),
    **dict.fromkeys(("float", "real"), spark.FloatType),
    "double": spark.DoubleType,
    "binary": spark.BinaryType,
    "date": spark.DateType,
    "timestamp_ltz": spark.TimestampType,
    "timestamp_ntz": spark.TimestampNTZType,
    "void": spark.NullType,
}
_DECIMALS = ("decimal", "dec", "numeric")
_TEXTS = ("varchar", "char", "character")
_NESTED = ("array", "map", "struct")
_OTHERS = ("time", "interval", "variant", "geometry", "geography")
#: The first words of Spark's types.
TYPES = (*_SIMPLE, *_DECIMALS, *_TEXTS, "string", "timestamp", *_NESTED, *_OTHERS)
_FOLLOWS = ("not", "null", "comment", "default", "generated", "collate", "with", "without")


def written_columns(ddl: str) -> list[tuple[str, str]]:
    """Return the columns of a table's schema, each with its type as it is written. O(letters).

    >>> written_columns("id long NOT NULL, `my tags`: map<string, decimal(9, 2)> COMMENT 'a, b'")
    [('id', 'long'), ('my tags', 'map<string, decimal(9, 2)>')]
    """
    tokens, columns = Tokens(ddl, WORDS), []
    while True:
        word = tokens.take()
        if not re.fullmatch(r"\w+|`.+`", word, re.DOTALL):
            raise tokens.error(
                word or "the end of the schema", "the name of a column; put special names in backticks"
            )
        name = name_of(word)
        if tokens.peek() == ":":
            tokens.take()
        begin = tokens.begin
        with tokens.inside(name):
            _Reader(tokens).type()
            columns.append((name, ddl[begin : tokens.end]))
            _skip_what_follows(tokens)
            if tokens.peek() not in ("", ","):
                raise tokens.unexpected("a comma, or the end")
        if not tokens.take():
            return columns


def read_type(written: str, timestamp: str = "TIMESTAMP_LTZ") -> spark.DataType | None:
    """Return a column's written type; None for one that is not known here.

    `timestamp`: which type `timestamp` is, Spark's `spark.sql.timestampType`.

    >>> read_type("struct<a: int, b: array<innt>>")
    Traceback (most recent call last):
    taskplace.spark.types.TypeTextError: in b.element: found 'innt', expected a type; did you mean 'int'?
    """
    reader = _Reader(Tokens(written, WORDS), timestamp)
    kind = reader.type()
    _skip_what_follows(reader.tokens)
    reader.tokens.finish()
    return kind if reader.known else None


def struct_type(
    columns: Iterable[tuple[str, object]], timestamp: str = "TIMESTAMP_LTZ"
) -> spark.StructType | None:
    """Return the schema of columns with their written types; None if one of them is not known here.

    >>> struct_type([("id", "long NOT NULL"), ("tags", "map<string, array<decimal(9, 2)>>")]).simpleString()
    'struct<id:bigint,tags:map<string,array<decimal(9,2)>>>'
    >>> struct_type([("took", "interval day to second")])
    """
    fields = []
    for name, written in columns:
        try:
            kind = read_type(str(written), timestamp)
        except TypeTextError:
            return None
        if kind is None:
            return None
        fields.append(spark.StructField(name, kind))
    return spark.StructType(fields)


class _Reader:
    """Reads one type; `known` is false once a type was read that is not known here."""

    def __init__(self, tokens: Tokens, timestamp: str = "TIMESTAMP_LTZ") -> None:
        self.tokens = tokens
        self.known = True
        self._timestamp = timestamp.upper()

    def type(self) -> spark.DataType:
        tokens = self.tokens
        written = tokens.take()
        name = written.lower()
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name in _DECIMALS:
            return spark.DecimalType(*tokens.decimal()) if tokens.peek() == "(" else spark.DecimalType(10, 0)
        if name in _TEXTS:
            tokens.expect("(")
            tokens.number()
            tokens.expect(")")
            return spark.StringType()
        if name == "string":
            return spark.StringType()
        if name == "timestamp":
            self.known &= tokens.peek().lower() not in ("with", "without")  # ... time zone
            return spark.TimestampNTZType() if self._timestamp == "TIMESTAMP_NTZ" else spark.TimestampType()
        if name in _NESTED:
            return self._nested(name)
        if name in _OTHERS:
            self.known = False
            _skip(tokens)
            return spark.NullType()
        raise tokens.unknown(written, TYPES)

    def _nested(self, name: str) -> spark.DataType:
        tokens = self.tokens
        tokens.expect("<")
        if name == "struct":
            return self._struct()
        if name == "array":
            element = self._part("element")
            tokens.expect(">")
            return spark.ArrayType(element)
        key = self._part("key")
        tokens.expect(",")
        value = self._part("value")
        tokens.expect(">")
        return spark.MapType(key, value)

    def _part(self, name: str) -> spark.DataType:
        with self.tokens.inside(name):
            return self.type()

    def _struct(self) -> spark.StructType:
        tokens = self.tokens
        fields: list[spark.StructField] = []
        while tokens.peek() != ">" or fields:
            if not re.fullmatch(r"\w+|`.+`", tokens.peek(), re.DOTALL):
                raise tokens.unexpected("the name of a field")
            name = name_of(tokens.take())
            if tokens.peek() == ":":
                tokens.take()
            fields.append(spark.StructField(name, self._part(name)))
            with tokens.inside(name):
                _skip_what_follows(tokens)
            if tokens.peek() == ">":
                break
            tokens.expect(",", ">")
        tokens.expect(">")
        return spark.StructType(fields)


def _skip_what_follows(tokens: Tokens) -> None:
    if tokens.peek().lower() in _FOLLOWS:
        _skip(tokens)


def _skip(tokens: Tokens) -> None:
    """Go on to the end of a column, or of a field."""
    depth = 0
    while tokens.peek() and (depth or tokens.peek() not in (",", ">")):
        depth += {"(": 1, ")": -1}.get(tokens.take(), 0)
