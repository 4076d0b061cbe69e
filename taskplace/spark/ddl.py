"""Spark's written schemas (DDL), read without Spark.

**Idea.** Spark's own parser needs a JVM. To judge a declared schema before anything starts, its types are read here,
into the classes of `pyspark.sql.types`. Rare types (`interval`, `variant`, ...), a string with a collation,
and a timestamp that is written `with` or `without time zone` count as not known.

Properties: names of types in any case; `varchar(n)` and `char(n)` are read as text, as Spark's readers do; what follows
a type (`NOT NULL`, `COMMENT`, `COLLATE`, ...) is skipped.

Errors: `TypeTextError` with the place inside the type, what was found there, and the nearest known type.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import DataType, StructField, StructType

from taskplace.spark.types import SPARK, TypeReader, TypeTextError
from taskplace.spark.versions import from_arrow_type


def written_columns(ddl: str) -> list[tuple[str, str]]:
    """Return the columns of a table's schema, each with its type as it is written. O(letters).

    >>> written_columns("id long NOT NULL, `my tags`: map<string, decimal(9, 2)> COMMENT 'a, b'")
    [('id', 'long'), ('my tags', 'map<string, decimal(9, 2)>')]
    """
    return [(name, written) for name, _, written in TypeReader(ddl).columns("")]


def read_type(written: str, timestamp: str = "TIMESTAMP_LTZ") -> DataType | None:
    """Return a column's written type; None for one that is not known here.

    `timestamp`: which type `timestamp` is, Spark's `spark.sql.timestampType`.

    >>> read_type("struct<a: int, b: array<innt>>")
    Traceback (most recent call last):
    taskplace.spark.types.TypeTextError: in b.element: found 'innt', expected a type; did you mean 'int'?
    """
    reader = TypeReader(written, timestamp=SPARK.get(timestamp.lower(), SPARK["timestamp"]))
    kind = reader.column_type()
    return None if reader.rare else from_arrow_type(kind)


def struct_type(columns: Iterable[tuple[str, object]], timestamp: str = "TIMESTAMP_LTZ") -> StructType | None:
    """Return the schema of columns with their written types; None if one of them is not known here.

    >>> struct_type([("id", "long NOT NULL"), ("tags", "map<string, array<decimal(9, 2)>>")]).simpleString()
    'struct<id:bigint,tags:map<string,array<decimal(9,2)>>>'
    >>> struct_type([("took", "interval day to second")])
    """
    try:
        kinds = [(name, read_type(str(written), timestamp)) for name, written in columns]
    except TypeTextError:
        return None
    known = [StructField(name, kind) for name, kind in kinds if kind is not None]
    return StructType(known) if len(known) == len(kinds) else None
