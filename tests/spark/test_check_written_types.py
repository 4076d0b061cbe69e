"""Written types: a mistake is one error with the place inside the type, in YAML and in code, before anything starts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.errors import ConfigError, InputError
from taskplace.spark.ddl import read_type, struct_type, written_columns
from taskplace.spark.processors import Count, sum_
from taskplace.spark.types import DEEPEST, TypeTextError, parse
from taskplace.spark.worker.schemas import declare
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
from topology import TopologyError

APP = {
    "application": {"id": "a"},
    "topology": {
        "sources": {"in": {"key": "k", "partitions": 2}},
        "nodes": {
            "n": {"process": "in", "processor": "count", "options": {"by": {"k": "string"}}},
            "out": {"sink": "n"},
        },
    },
    "input": {"in": {"format": "csv", "path": "/nowhere/in", "schema": "k string"}},
    "output": {"out": {"path": "/nowhere/out"}},
}

WRONG = [
    # type, place, what the error says
    ("struct<a:innt>", ".a", "found 'innt', expected a Spark type; did you mean 'int'?"),
    ("array<struct<b:int,c:map<int,strng>>>", ".element.c.value", "found 'strng', .* did you mean 'string'?"),
    ("map<lnog,int>", ".key", "found 'lnog', .* did you mean 'long'?"),
    ("decimal(50,2)", "", "found '50 digits', expected a decimal of 1 to 38 digits"),
    ("decimal(5,7)", "", "found 'a scale of 7 with a precision of 5', expected a scale of 0 to 5"),
    ("decimal(a)", "", r"found 'a', expected a whole number behind .*decimal\('"),
    ("long foo", "", "found 'foo', expected (nothing more|.,.) behind .*long'"),
    ("array<int", "", "found 'the end of the type', expected '>' behind .*array<int'"),
    ("map<int>", "", "found '>', expected ',' behind .*map<int'"),
    ("array<>", ".element", "found '>', expected a Spark type|a type behind .*array<'"),
    ("struct<a:int b:int>", ".a|", "expected"),
    ("varchar", "", r"found 'the end of the type', expected '\(' behind .*varchar'"),
    ("innt", "", "found 'innt', expected a Spark type; did you mean 'int'?"),
]


@pytest.mark.parametrize(("written", "place", "says"), WRONG)
def test_a_schema_in_yaml(written, place, says):
    for form in (f"k string, x {written}", {"k": "string", "x": written}):
        with pytest.raises(ConfigError, match=rf"^input\.in\.schema\.x({place}): .*({says})") as caught:
            YamlApplication(
                Settings.from_mapping(APP | {"input": {"in": APP["input"]["in"] | {"schema": form}}})
            )
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "ddl",
    [
        "k string, x int NOT NULL COMMENT 'a, b: (c', y struct<a: int COMMENT \"x\", b array<long> NOT NULL>",
        "k: string, x: interval day to second, y time(3), z variant, g geometry(4326)",
        "k string, x int DEFAULT (1 + 2), z char(3) COMMENT 'it''s', `a b` dec",
    ],
)
def test_schemas_that_are_let_through(ddl):
    YamlApplication(Settings.from_mapping(APP | {"input": {"in": APP["input"]["in"] | {"schema": ddl}}}))


@pytest.mark.parametrize(
    "ddl", ["k string,", ", k string", "k", "k string, a-b int", "k string, struct<a:int>"]
)
def test_what_is_no_list_of_columns(ddl):
    with pytest.raises(ConfigError, match=r"^input\.in\.schema[^ ]*: found .*, expected "):
        YamlApplication(Settings.from_mapping(APP | {"input": {"in": APP["input"]["in"] | {"schema": ddl}}}))


def test_columns_as_they_are_written():
    found = written_columns("a int, `b``c`: map<string , array<int>> NOT NULL, d decimal( 9, 2 ) COMMENT 'x'")
    assert found == [("a", "int"), ("b`c", "map<string , array<int>>"), ("d", "decimal( 9, 2 )")]
    schema = struct_type(found)
    assert schema is not None
    assert schema.simpleString() == "struct<a:int,b`c:map<string,array<int>>,d:decimal(9,2)>"


def test_a_timestamp_that_is_written_out_is_not_known():
    assert read_type("struct<a: timestamp without time zone>") is None


@pytest.mark.parametrize("read", [read_type, parse])
def test_types_in_types_without_end(read):
    with pytest.raises(TypeTextError, match=f"nested too deeply.*at most {DEEPEST} levels"):
        read("array<" * 5000 + "int" + ">" * 5000)


# -- in code -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("struct<a: list<innt>>", r"x\.a\.element: found 'innt', expected a type; did you mean 'int'\?"),
        ("decimal(50, 2)", r"x: found '50 digits', expected a decimal of 1 to 38 digits"),
        ("list<int64", r"x: found 'the end of the type', expected '>' behind 'list<int64'"),
        ("int64 foo", r"x: found 'foo', expected nothing more behind 'int64'"),
        ("innt", r"x: found 'innt', expected .*; did you mean 'int'\?"),
        ("", r"x: found 'the end of the type', expected a type"),
    ],
)
def test_types_of_columns_and_sinks(written, says):
    with pytest.raises(InputError, match=rf"^sinks\.out\.schema\.{says}"):
        declare("out", {"x": written})
    with pytest.raises(InputError, match=rf"^Aggregate\('c'\)\.by\.{says}"):
        Count("c", by={"x": written})
    options = {"by": {"x": written}}
    nodes = APP["topology"]["nodes"] | {"n": {"process": "in", "processor": "count", "options": options}}
    with pytest.raises(TopologyError, match=rf"^topology\.nodes\.n\.options\.by\.{says}"):
        YamlApplication(Settings.from_mapping(APP | {"topology": APP["topology"] | {"nodes": nodes}}))


def test_the_type_of_an_aggregate():
    with pytest.raises(InputError, match=r"^sum\.type: found 'innt', expected .*; did you mean 'int'"):
        sum_("x", "innt")


def test_names_as_arrow_writes_them():
    for kind in (pa.timestamp("ms", "Europe/Berlin"), pa.decimal128(9, 2), pa.date32()):
        assert parse(str(kind)).equals(kind)
    assert parse("decimal(9)").equals(pa.decimal128(9, 0))
