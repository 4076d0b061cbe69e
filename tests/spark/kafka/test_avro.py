"""Values of Avro: defaults, logical types that a writer does not have, and data that nobody vouches for."""

from __future__ import annotations

import datetime as dt
import decimal
import struct

import pytest

from taskplace.errors import InputError
from taskplace.spark.kafka.formats import Avro
from tests.support.payloads import fault, only, record, written

UTC = dt.timezone.utc


def logical(kind: str, of: str, **more):
    return {"type": kind, "logicalType": of, **more}


FARE = {"precision": 9, "scale": 2}
INNER = record(a=logical("bytes", "decimal", **FARE), b="bytes") | {"name": "Inner"}
INNER["fields"][1]["default"] = "\u00ff"
AT = 1_356_998_400_000
WHEN = dt.datetime(2013, 1, 1, tzinfo=UTC)
#: A type, a value as JSON or as a writer without the logical type writes it, and the value that it is.
DEFAULTS = [
    (logical("bytes", "decimal", **FARE), "\u007d", decimal.Decimal("1.25")),
    (logical("fixed", "decimal", name="F", size=4, **FARE), "\u00ff\u00ff\u00ff\u0083", decimal.Decimal("-1.25")),
    (logical("int", "date"), 15_706, dt.date(2013, 1, 1)),
    (logical("long", "timestamp-millis"), AT, WHEN),
    (logical("long", "timestamp-micros"), 1000 * AT, WHEN),
    (logical("long", "local-timestamp-millis"), AT, WHEN.replace(tzinfo=None)),
    (logical("long", "local-timestamp-micros"), 1000 * AT, WHEN.replace(tzinfo=None)),
    ("bytes", "\u0000\u00e9\u00ff", b"\x00\xe9\xff"),
    ({"type": "fixed", "name": "X", "size": 2}, "\u00e9a", b"\xe9a"),
    ("string", "\u00e9", "\u00e9"),
    ("double", 1, 1.0),
    ("boolean", True, True),
    ({"type": "enum", "name": "K", "symbols": ["A", "B"]}, "B", "B"),
    (["null", "bytes"], None, None),
    ([logical("int", "date"), "null"], 0, dt.date(1970, 1, 1)),
    ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    ({"type": "array", "items": "int"}, [1], [1]),
    ({"type": "map", "values": logical("int", "date")}, {"k": 0}, [("k", dt.date(1970, 1, 1))]),
    (INNER, {"a": "\u0001"}, {"a": decimal.Decimal("0.01"), "b": b"\xff"}),
]  # fmt: skip


@pytest.mark.parametrize("kind, given, value", DEFAULTS)
def test_the_default_of_an_added_field_is_its_value_by_avros_rules(kind, given, value):
    old, new = record(id="int"), record(id="int", more=kind)
    new["fields"][1]["default"] = given
    form = Avro(new, writers={1: old, 2: new})
    assert only(form, struct.pack(">bI", 0, 1) + written(old, {"id": 1})) == {"id": 1, "more": value}
    kept = dict(value) if isinstance(value, list) and isinstance(value[0], tuple) else value
    own = struct.pack(">bI", 0, 2) + written(new, {"id": 1, "more": kept})
    assert only(form, own) == {"id": 1, "more": value}


@pytest.mark.parametrize("kind, given, value", [case for case in DEFAULTS if "logicalType" in case[0]])
def test_data_from_before_a_logical_type_has_values_of_it(kind, given, value):
    bare = {name: of for name, of in kind.items() if name in ("type", "name", "size")}
    raw = given.encode("iso-8859-1") if isinstance(given, str) else given
    form = Avro(record(v=kind), writers={1: record(v=bare)})
    assert only(form, struct.pack(">bI", 0, 1) + written(record(v=bare), {"v": raw})) == {"v": value}


def test_a_writers_logical_type_says_what_is_written():
    millis = record(
        at=logical("long", "timestamp-millis"), n=logical("bytes", "decimal", precision=4, scale=1)
    )
    micros = record(
        at=logical("long", "timestamp-micros"), n=logical("bytes", "decimal", precision=9, scale=3)
    )
    payload = struct.pack(">bI", 0, 1) + written(millis, {"at": WHEN, "n": decimal.Decimal("1.5")})
    assert only(Avro(micros, writers={1: millis}), payload) == {"at": WHEN, "n": decimal.Decimal("1.500")}


def varint(number: int) -> bytes:
    return written("long", number)


LINKED = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}


def test_data_takes_neither_the_stack_nor_the_time_of_the_process():
    """A type that contains itself ended the process; a decimal of 1 MB took 90 s."""
    deep = Avro(record(id="long"), writers={1: record(id="long", skipped=LINKED)})
    framed = struct.pack(">bI", 0, 1) + b"\x02"
    assert fault(deep, framed + b"\x02" * 1_000_000 + b"\x00").endswith("(RecursionError)")
    assert only(deep, framed + b"\x02" * 100 + b"\x00") == {"id": 1}
    number = Avro(record(n=logical("bytes", "decimal", precision=38)))
    assert fault(number, varint(1_000_000) + b"\x7f" * 1_000_000).endswith("(ValueError)")
    assert only(number, varint(17) + b"\xff" * 17) == {"n": -1}  # more bytes than it needs
    assert fault(Avro(record(n=logical("bytes", "decimal", precision=4))), varint(2) + b"\x7f\xff")


@pytest.mark.parametrize(
    "items",
    ["null", record(), record(a="null"), {"type": "fixed", "name": "F", "size": 0}, {"type": "null"}],
)
def test_an_array_of_any_length_in_a_few_bytes_is_refused(items):
    many = record(
        id="long", many={"type": "array", "items": {**items, "name": "I"} if "name" in items else items}
    )
    with pytest.raises(InputError, match=r"Avro.writers.1: found 'an array whose items take no bytes'"):
        Avro(record(id="long"), writers={1: many})
