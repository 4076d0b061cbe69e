"""Written schemas of Spark's, read without Spark, are what Spark reads."""

from __future__ import annotations

import pytest
from pyspark.sql.types import TimestampNTZType, TimestampType

from taskplace.spark.ddl import struct_type


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("BIGINT", "bigint"),
        ("integer not null", "int"),
        ("dec", "decimal(10,0)"),
        ("NUMERIC(5)", "decimal(5,0)"),
        ("decimal( 38 , 9 )", "decimal(38,9)"),
        ("char(3)", "string"),
        ("array<array<smallint>>", "array<array<smallint>>"),
        (
            "struct<`a b`: int not null, c struct<d: date>, e real>",
            "struct<a b:int,c:struct<d:date>,e:float>",
        ),
        ("map<tinyint, timestamp_ntz>", "map<tinyint,timestamp_ntz>"),
        ("void", "void"),
    ],
)
def test_types(written, simple):
    found = struct_type([("x", written)])
    assert found is not None
    assert found.simpleString() == f"struct<x:{simple}>"


@pytest.mark.parametrize(
    "written",
    [
        "",
        "inty",
        "array<int",
        "map<int>",
        "decimal(a)",
        "interval day to second",
        "array<variant>",
        "geometry(4326)",
        "timestamp without time zone",
    ],
)
def test_what_is_not_known_makes_the_schema_unknown(written):
    assert struct_type([("id", "long"), ("x", written)]) is None


def test_what_a_timestamp_is_depends_on_the_session():
    for setting, kind in (("TIMESTAMP_LTZ", TimestampType), ("timestamp_ntz", TimestampNTZType)):
        found = struct_type([("x", "timestamp")], setting)
        assert found is not None
        assert isinstance(found["x"].dataType, kind)
