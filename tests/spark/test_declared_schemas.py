"""Declared schemas of sinks: they count from the start, and may change where rows can."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from taskplace.errors import CheckpointError, InputError
from tests.support.sink_streams import Stream, table

pytestmark = pytest.mark.usefixtures("frames_with_a_session")


def test_a_declared_schema_counts_from_the_start(world):
    stream = Stream(world, schema={"n": "int64", "f": "double"})
    stream.refused(table(n=[1.0], f=[1.0]), match="sinks.out.n: found 'double', expected int64, as declared")
    wide = table(n=[1], f=[2**53 + 1])
    stream.refused(wide, match="sinks.out.f: found 'int64 .*expected values that fit double")
    stream.batch(table(f=[3], n=([1], pa.int8())), table(n=[2], f=[0.5]), table(n=pa.nulls(1), f=pa.nulls(1)))
    assert stream.sent() == {0: [(1, 3.0), (2, 0.5), (None, None)]}


def test_a_declared_float_takes_each_integer_that_it_holds(world):
    stream = Stream(world, schema={"f": "double", "g": "float"})
    for wrong, kind in ((2**60 + 1, "int64"), (2**64 - 1, "uint64")):
        wide = table(f=([wrong, 0], getattr(pa, kind)()), g=[0, 0])
        stream.refused(wide, match=f"sinks.out.f: found '{kind} .{wrong} is not a value of double.*")
    stream.refused(table(f=[1], g=[2**24 + 1]), match="sinks.out.g: .*16777217 is not a value of float")
    large = table(f=[2**60, -(2**53) - 2], g=[2**25, None])
    stream.batch(large, table(f=([2**63, 3], pa.uint64()), g=[1, 2]))
    assert stream.sent() == {0: [(-(2.0**53) - 2, None), (2.0**60, 2.0**25), (3.0, 2.0), (2.0**63, 1.0)]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"n": "int46"}, r"sinks\.out\.schema\.n: found 'int46'"),
        ({"n": pa.time64("us")}, r"sinks\.out\.schema\.n: found 'time64\[us\]'.*Spark cannot read time64"),
        ({"n": "null"}, r"sinks\.out\.schema\.n: found 'null'"),
        ({"n": "int64", "N": "int64"}, "treats as one name"),
        ({}, "columns: none"),
        ("n long", r"sinks\.out\.schema: found 'n long'"),
    ],
)
def test_a_schema_that_is_none_is_refused_at_the_start(world, schema, says):
    with pytest.raises(InputError, match=says):
        Stream(world, schema=schema)


def test_a_schema_changes_when_another_is_declared(world, caplog):
    stream = Stream(world)
    stream.batch(table(k=["a"], n=([1], pa.int32())))
    wider = table(k=["a"], n=[2**40], m=["x"])
    stream.open()
    stream.refused(wider, match="or declare the sink's schema")
    with caplog.at_level(logging.WARNING):
        stream.open(schema={"m": "string", "n": "int64", "k": "string"})
    assert "the schema of sink 'out' changes from {'k': 'string', 'n': 'int32'} to {'m': " in caplog.text
    stream.batch(wider)
    stream.refused(table(k=["a"], n=[1]), match="columns")
    stream.sink = {}
    stream.open()
    stream.batch(wider)
    assert stream.sent() == {0: [("a", 1)], 1: [("x", 2**40, "a")], 2: [("x", 2**40, "a")]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"k": "string"}, "column 'n' is not in it"),
        ({"k": "string", "n": "double"}, "column 'n' is int64, which double does not hold"),
        ({"k": "string", "n": "int32"}, "column 'n' is int64, which int32 does not hold"),
    ],
)
def test_a_schema_that_cannot_become_the_declared_one_is_refused_at_the_start(world, schema, says):
    stream = Stream(world)
    before = stream.placed
    stream.batch(table(k=["a"], n=[1]))
    with pytest.raises(CheckpointError, match=f"{says}.*another name"):
        stream.open(schema=schema)
    stream.placed = before  # which nobody has stopped
    stream.batch(table(k=["a"], n=[1]))
