"""Spark's written schemas (DDL), read without Spark.

**Idea.** Spark's own parser needs a JVM. To judge a declared schema before anything starts, its types are read here,
into the classes of `pyspark.sql.types`. A schema with other types (intervals, geometries) counts as not known: Spark
judges it when the source is opened.

Properties: names of types in any case; `varchar(n)` and `char(n)` are read as text, as Spark's readers do; what follows
a type (`NOT NULL`, `COMMENT`, ...) changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import types as spark

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
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[<>(),:]|[^\s<>(),:`]+)")


def struct_type(
    columns: Iterable[tuple[str, object]], timestamp: str = "TIMESTAMP_LTZ"
) -> spark.StructType | None:
    """Return the schema of columns with their written types; None if a type is not known here.

    `timestamp`: which type `timestamp` is, Spark's `spark.sql.timestampType`.

    >>> struct_type([("id", "long NOT NULL"), ("tags", "map<string, array<decimal(9, 2)>>")]).simpleString()
    'struct<id:bigint,tags:map<string,array<decimal(9,2)>>>'
    >>> struct_type([("took", "interval day to second")]) is None
    True
    """
    fields = []
    for name, written in columns:
        tokens = _TOKEN.findall(str(written))
        try:
            fields.append(spark.StructField(name, _type(tokens, timestamp.upper())))
        except (KeyError, IndexError, ValueError):
            return None
    return spark.StructType(fields)


def _type(tokens: list[str], timestamp: str) -> spark.DataType:
    """Take a type off the tokens. Errors: `KeyError`, `IndexError` and `ValueError` for what is not known."""
    name = tokens.pop(0).lower()
    if name == "timestamp":
        return spark.TimestampNTZType() if timestamp == "TIMESTAMP_NTZ" else spark.TimestampType()
    if name in ("decimal", "dec", "numeric"):
        numbers = _numbers(tokens)
        return spark.DecimalType(*numbers) if numbers else spark.DecimalType(10, 0)
    if name in ("varchar", "char", "character"):
        _numbers(tokens)
        return spark.StringType()
    if name == "string":
        if tokens[:1] and tokens[0].lower() == "collate":
            _, collation = tokens.pop(0), tokens.pop(0)
            return spark.StringType(collation)
        return spark.StringType()
    if name == "array":
        _take(tokens, "<")
        element = _type(tokens, timestamp)
        _take(tokens, ">")
        return spark.ArrayType(element)
    if name == "map":
        _take(tokens, "<")
        key = _type(tokens, timestamp)
        _take(tokens, ",")
        value = _type(tokens, timestamp)
        _take(tokens, ">")
        return spark.MapType(key, value)
    if name == "struct":
        return _struct(tokens, timestamp)
    return _SIMPLE[name]()


def _struct(tokens: list[str], timestamp: str) -> spark.StructType:
    fields: list[spark.StructField] = []
    _take(tokens, "<")
    while tokens[0] != ">":
        if fields:
            _take(tokens, ",")
        name = tokens.pop(0)
        if tokens[0] == ":":
            tokens.pop(0)
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        fields.append(spark.StructField(name, _type(tokens, timestamp)))
        while tokens[0] not in (",", ">"):  # NOT NULL, COMMENT
            tokens.pop(0)
    _take(tokens, ">")
    return spark.StructType(fields)


def _numbers(tokens: list[str]) -> list[int]:
    """Take numbers in parentheses off the tokens; none if there are none."""
    if tokens[:1] != ["("]:
        return []
    found = []
    while tokens.pop(0) != ")":
        found.append(int(tokens.pop(0)))
    return found


def _take(tokens: list[str], token: str) -> None:
    if tokens.pop(0) != token:
        raise ValueError(token)
