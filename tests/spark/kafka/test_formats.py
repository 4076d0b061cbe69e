"""Formats of keys and values: what each decodes, and which payloads are faults. No reason shows a value."""

from __future__ import annotations

import datetime as dt
import decimal
import struct
import uuid

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.kafka.formats import Avro, Json, Raw
from tests.support.payloads import fault, only, record, written

SECRET = "hunter2hunter2"
UTC = dt.timezone.utc


# --------------------------------------------------------------------------------------- JSON


#: Numbers with exponents that end Arrow's process, or that no type has.
FAR = ["1e-999999999", "0e-999999999", "1e999999999", "1e99999999999999999999", "1e-99999999999999999999"]


@pytest.mark.parametrize(
    "kind, written, value",
    [
        ("boolean", "true", True),
        ("int8", "-128", -128),
        ("int64", "9223372036854775807", 2**63 - 1),
        ("double", "3", 3.0),
        ("double", "9007199254740994", 9007199254740994.0),
        ("array<double>", "[1152921504606846976, 1.5]", [2.0**60, 1.5]),
        ("struct<a: double>", '{"a": 1152921504606846976}', {"a": 2.0**60}),
        ("map<string, float>", '{"k": 33554432}', [("k", 2.0**25)]),
        ("float32", "0.5", 0.5),
        ("decimal(5, 2)", "1.25", decimal.Decimal("1.25")),
        ("decimal(5, 2)", '"1.25"', decimal.Decimal("1.25")),
        ("decimal(5, 2)", "-125e-2", decimal.Decimal("-1.25")),
        ("decimal(38, 0)", "9" * 38, decimal.Decimal("9" * 38)),
        ("map<string, decimal(5, 2)>", '{"k": "+.5"}', [("k", decimal.Decimal("0.50"))]),
        ("string", '"\\u00e9"', "é"),
        ("binary", '"AAE="', b"\x00\x01"),
        ("date", '"2013-01-02"', dt.date(2013, 1, 2)),
        ("timestamp", '"2013-01-02T03:04:05.000006+01:00"', dt.datetime(2013, 1, 2, 2, 4, 5, 6, tzinfo=UTC)),
        ("timestamp_ntz", '"2013-01-02T03:04:05"', dt.datetime(2013, 1, 2, 3, 4, 5)),
        ("array<int32>", "[1, null]", [1, None]),
        ("struct<a: int64, b: array<string>>", '{"a": 1, "more": 2}', {"a": 1, "b": None}),
        ("map<string, int64>", '{"k": 1}', [("k", 1)]),
        ("string", "null", None),
    ],
)
def test_json_has_typed_columns(kind, written, value):
    form = Json({"v": kind, "other": "string"})
    assert only(form, b'{"v": ' + written.encode() + b', "unknown": [1]}') == {"v": value, "other": None}


@pytest.mark.parametrize(
    "kind, written",
    [
        ("int64", f'"{SECRET}"'),
        ("int64", "1.5"),
        ("int8", "128"),
        ("int64", "9223372036854775808"),
        ("float32", "1e300"),
        ("double", "1e999"),
        ("double", "9007199254740993"),
        ("float32", "16777217"),
        ("array<double>", "[9007199254740993]"),
        ("double", "1" * 400),
        ("boolean", "1"),
        ("string", "1"),
        ("string", '"\\ud800"'),
        ("decimal(5, 2)", "1.255"),
        ("decimal(5, 2)", "12345"),
        *(
            ("decimal(5, 2)", f'"{text}"')
            for text in ("1_00", " 1.1 ", "１", "NaN", "Infinity", "0x1", "1e", "")
        ),
        *(("decimal(5, 2)", f"{quote}{n}{quote}") for quote in ("", '"') for n in FAR),
        ("array<decimal(5, 2)>", '["1_0"]'),
        ("decimal(5, 2)", "true"),
        ("decimal(5, 2)", f'"{SECRET}"'),
        ("date", f'"{SECRET}"'),
        ("timestamp", '"2013-01-02T03:04:05"'),
        ("timestamp_ntz", '"2013-01-02T03:04:05Z"'),
        ("array<int32>", f'[1, "{SECRET}"]'),
        ("struct<a: int64>", f'{{"a": "{SECRET}"}}'),
        ("map<string, int64>", f'{{"k": "{SECRET}"}}'),
        ("map<string, int64>", f'{{"{SECRET}": "x"}}'),
    ],
)
def test_a_value_of_another_type_is_a_fault_that_does_not_show_it(kind, written):
    why = fault(Json({"v": kind}), b'{"v": ' + written.encode() + b"}")
    assert why.startswith("JSON: ") and SECRET not in why and written not in why


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"null", b"[1]", b'{"v": "a"}{"v": "b"}', b'{"v": "\xff"}', b'{"v": ' + b"[" * 100_000],
    ids=["empty", "cut", "null", "list", "two", "not utf-8", "deep"],
)
def test_what_is_no_single_object_is_a_fault(payload):
    assert fault(Json({"v": "string"}), payload).startswith("JSON: ")


def test_a_required_field_that_is_missing_or_null_is_a_fault():
    """A bad record's row has only nulls, so the columns themselves may be null."""
    strict = pa.struct([pa.field("a", pa.list_(pa.int64()), nullable=False)])
    by_name = {"id": "bigint  not NULL", "more": "string", "in": strict}
    for form in (Json(by_name), Json(pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("more", pa.string()), pa.field("in", strict)]
    ))):  # fmt: skip
        assert form.columns.field("id").nullable and form.columns.field("in").type.field("a").nullable
        rows, faults = form.read(
            [b'{"id": 1}', b"{}", b'{"id": null}', b'{"id": 1, "in": {}}', b'{"id": 2, "in": {"a": [null]}}']
        )
        assert rows["id"].to_pylist() == [1, None, None, None, 2]
        assert faults == {
            1: "JSON: Object missing required field `id`",
            2: "JSON: Expected `int`, got `null` - at `$.id`",
            3: "JSON: Object missing required field `a` - at `$.in`",
        }


@pytest.mark.parametrize("kind", ["NOT NULL", "list<int NOT NULL>"])
def test_what_is_no_required_type_is_refused(kind):
    with pytest.raises(InputError, match=r"Json.columns.a: found 'N"):
        Json({"a": kind})


def test_faults_leave_the_other_rows_as_they_are():
    rows, faults = Json({"v": "decimal(3, 2)"}).read([b'{"v": 1}', b'{"v": 1.234}', b"?", b'{"v": 2}'])
    assert rows["v"].to_pylist() == [1, None, None, 2]
    assert faults == {
        1: "JSON: a value that does not fit its type at JSON.v",
        2: "JSON: JSON is malformed: invalid character (byte 0)",
    }


@pytest.mark.parametrize("kind", ["map<int64, string>", "uint8", "time64[us]", "duration[us]"])
def test_json_refuses_types_that_it_cannot_decode(kind):
    with pytest.raises(InputError, match=r"Json.columns.a(.element)?: found"):
        Json(pa.schema([("a", pa.map_(pa.int64(), pa.string()))]) if kind.startswith("map") else {"a": kind})


# --------------------------------------------------------------------------------------- Avro

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "by_leg", "type": {"type": "map", "values": "float"}},
        {"name": "plane", "type": {"type": "record", "name": "Plane", "fields": [
            {"name": "seats", "type": {"type": "array", "items": ["null", "int"]}}]}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "late", "type": "boolean"},
    ],
}  # fmt: skip
ROW = {
    "at": dt.datetime(2013, 1, 1, 2, tzinfo=UTC),
    "kind": "A",
    "again": "B",
    "id": uuid.UUID(int=5),
    "fare": decimal.Decimal("1.25"),
    "by_leg": {"one": 1.5},
    "plane": {"seats": [1, None]},
    "clock": dt.time(1),
    "local": dt.datetime(2013, 1, 1),
    "day": dt.date(2013, 1, 1),
    "code": b"ab",
    "late": True,
}


def test_avro_has_the_columns_of_the_schema():
    assert only(Avro(FLIGHT), written(FLIGHT, ROW)) == {
        **ROW,
        "id": str(ROW["id"]),
        "by_leg": [("one", 1.5)],
        "clock": 3_600_000,
    }


@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_a_datum_that_is_cut_is_a_fault(cut):
    assert fault(Avro(FLIGHT), written(FLIGHT, ROW)[:cut]).startswith("Avro: not a datum of the schema")


def test_bytes_behind_a_datum_are_a_fault():
    assert fault(Avro(FLIGHT), written(FLIGHT, ROW) + SECRET.encode()) == "Avro: 14 bytes behind the datum"


def test_text_that_is_not_utf8_is_a_fault_that_does_not_show_it():
    why = fault(Avro(record(a="string")), bytes([2 * 15]) + b"\xff" + SECRET.encode())
    assert why == "Avro: not a datum of the schema (UnicodeDecodeError)"


def test_data_of_a_writer_is_resolved_to_the_schema():
    old, new = record(a="int"), record(a="long", b=["null", "string"])
    new["fields"][1]["default"] = None
    form = Avro(new, writers={3: old, 7: new})
    rows, faults = form.read(
        [
            struct.pack(">bI", 0, 3) + written(old, {"a": 1}),
            struct.pack(">bI", 0, 7) + written(new, {"a": 2, "b": "x"}),
            struct.pack(">bI", 0, 8) + written(new, {"a": 2, "b": "x"}),
            written(new, {"a": 2, "b": "x"}),
        ]
    )
    assert rows.to_pylist()[:2] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert faults == {
        2: "Avro: written with schema 8, known are [3, 7]",
        3: "Avro: no zero byte and schema id in front",
    }


@pytest.mark.parametrize(
    "schema, message",
    [
        (record(a=["int", "string"]), "Avro.schema.a: found 'a union of 2 types', expected one type, or"),
        (record(a=["null", "R"]), "expected a type with values, and no record that contains itself"),
        (record(a="null"), "Avro.schema.a: found 'null', expected a type with values"),
        (record(a={"type": "bytes", "logicalType": "decimal", "precision": 39}), "at most 38"),
        (record(a="strin"), "Avro.schema: found .*UnknownType"),
        ("{", "expected an Avro schema"),
        (7, "expected an Avro schema"),
        ("long", "Avro.column: found nothing, expected a name of a column"),
    ],
)
def test_avro_refuses_schemas_that_have_no_columns(schema, message):
    with pytest.raises(InputError, match=message):
        Avro(schema)


def test_the_column_of_a_record_has_no_name():
    with pytest.raises(InputError, match=r"Avro.column: found 'a', expected no name"):
        Avro(FLIGHT, column="a")


def test_a_record_that_may_be_null_is_a_column():
    optional = ["null", record(a="int")]
    assert pa.types.is_struct(Avro(optional, column="x").columns.field("x").type)
    with pytest.raises(InputError, match=r"Avro.column: found nothing, expected a name of a column"):
        Avro(optional)


# --------------------------------------------------------------------------------------- raw


@pytest.mark.parametrize("kind, code", [("int16", "h"), ("int64", "q"), ("float32", "f"), ("float64", "d")])
def test_raw_numbers_of_each_size(kind, code):
    assert only(Raw("v", kind), struct.pack(f">{code}", 7)) == {"v": 7}
    assert fault(Raw("v", kind), b"").endswith(f"0 bytes, expected {struct.calcsize(code)}")


def test_raw_text_is_utf8():
    rows, faults = Raw("v", "string").read(["é".encode(), b"\xff", b""])
    assert rows["v"].to_pylist() == ["é", None, ""] and faults == {1: "string: not UTF-8 (byte 0)"}


def test_raw_refuses_other_types():
    with pytest.raises(InputError, match=r"Raw.kind: found 'int46'.*did you mean 'int64'"):
        Raw("v", "int46")
