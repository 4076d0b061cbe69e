"""Rows become records as docs/kafka.md says; what Kafka would refuse is refused.

The rows of a sink are read and encoded in pieces of some bytes, so records of a megabyte need little memory.
"""

from __future__ import annotations

import io
import json
import pickle
from datetime import date, datetime, timezone
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.errors import InputError
from taskplace.spark.kafka import record_format
from taskplace.spark.kafka import record_format as staged_rows
from taskplace.spark.kafka.record_format import CHUNK, Record, RecordFormat
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.worker import schemas

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")


AVRO = {
    "type": "record",
    "name": "total",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}


def form(**options) -> RecordFormat:
    return KafkaSink("out", servers="nowhere:9092", **options).row_check


def records(rows: pa.Table, **options) -> list[Record]:
    made = form(**options)
    made.check_columns("out", rows.schema)
    made.check_rows("out", rows)
    return list(made.records("out", rows))


def table(**columns) -> pa.Table:
    return pa.table(columns)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, None),
        ({"key": "id"}, b"1"),
        ({"key": ["id"]}, b'{"id":1}'),
        ({"key": ["name", "id"]}, b'{"name":"a","id":1}'),
        ({"key": "name", "key_format": "json"}, b'"a"'),
        ({"key": "raw"}, b"\xff"),
    ],
)
def test_keys(options, key):
    (found,) = records(table(id=[1], name=["a"], raw=[b"\xff"]), **options)
    assert found.key == key
    assert json.loads(found.value or b"") == {"id": 1, "name": "a", "raw": "/w=="}


def test_types_in_json():
    rows = table(
        at=pa.array([datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=timezone.utc)], pa.timestamp("us", "UTC")),
        day=[date(2026, 1, 2)],
        sum=pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        tiny=pa.array([[Decimal("0"), Decimal("1e-7"), None]], pa.list_(pa.decimal128(38, 18))),
        tens=pa.array([{"x": Decimal("1.2e5")}], pa.struct([("x", pa.decimal128(9, -4))])),
        part=pa.array([{"x": [1.5, None]}]),
        counts=pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        untyped=pa.nulls(1),
        large=[2**63 - 1],
    )
    (found,) = records(rows)
    assert json.loads(found.value or b"") == {
        "at": "2026-01-02T03:04:05.006000Z",
        "day": "2026-01-02",
        "sum": "1.50",
        "tiny": ["0.000000000000000000", "0.000000100000000000", None],
        "tens": {"x": "120000"},
        "part": {"x": [1.5, None]},
        "counts": {"a": 1},
        "untyped": None,
        "large": 2**63 - 1,
    }


def test_headers_time_and_tombstones():
    rows = table(
        id=["a", "b"],
        n=[1, 2],
        gone=pa.array([None, True]),
        trace=["x", None],
        raw=[b"1", b"2"],
        at=pa.array([datetime(2026, 1, 1, microsecond=1999), None], pa.timestamp("us")),
    )
    more = {"headers": {"trace-id": "trace", "raw": "raw"}, "timestamp": "at", "deleted": "gone"}
    first, second = records(rows, key="id", **more)
    assert first == Record(b"a", b'{"id":"a","n":1}', [("trace-id", b"x"), ("raw", b"1")], 1767225600001)
    assert second == Record(b"b", None, [("raw", b"2")], 0)


def test_raw_values_and_their_tombstones():
    found = records(table(id=["a", "b"], text=["x", None]), key="id", value="text", value_format="raw")
    assert [record.value for record in found] == [b"x", None]
    with pytest.raises(
        InputError, match=r"^sinks\.out\.value: found 'a null, which is a tombstone', expected 'a key'|a key"
    ):
        records(table(text=[None, "x"]), value="text", value_format="raw")


def test_avro():
    rows = table(id=[1], name=["a"], more=["not in the schema"])
    (found,) = records(
        rows, key="id", key_format="avro", key_schema='"long"', value_format="avro", value_schema=AVRO
    )
    assert fastavro.schemaless_reader(io.BytesIO(found.value), fastavro.parse_schema(AVRO), None) == {
        "id": 1,
        "name": "a",
    }
    assert found.key == b"\x02"
    with pytest.raises(
        InputError,
        match=r"^sinks\.out\.value: found .*id is no long",
    ) as raised:
        records(table(id=["secret text"], name=["a"]), value_format="avro", value_schema=AVRO)
    assert "secret text" not in str(raised.value)
    with pytest.raises(InputError, match=r"^sinks\.out\.target\.value: found 'name', expected one of id"):
        records(table(id=[1]), value_format="avro", value_schema=AVRO)


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        (table(id=["a"]), {"key": "idd"}, r"target\.key: found 'idd', .*did you mean 'id'"),
        (table(id=[1]), {"value": "id", "value_format": "raw"}, r"target\.value: found .*int64.* string or binary"),
        (table(id=[1], n=[1]), {"headers": ["id"]}, r"target\.headers: found .*int64"),
        (table(id=[1], n=[1]), {"timestamp": "id"}, r"target\.timestamp: found .*int64.*, expected a timestamp"),
        (table(id=[1], n=[1]), {"key": "id", "deleted": "n"}, r"target\.deleted: found .*expected a boolean"),
        (table(id=["a", None]), {"key": "id"}, r"key: found .a null in column 'id'"),
        (table(x=[1.0, float("nan")]), {}, r"value: found .NaN or infinity in column 'x'"),
        (table(x=pa.array([{"y": [float("inf")]}])), {}, r"value: found .NaN or infinity in column 'x'"),
        (
            table(x=pa.array([[(1, 1)]], pa.map_(pa.int64(), pa.int64()))),
            {},
            r"target\.value: found .*maps with strings as keys",
        ),
        (
            table(id=["a"], at=pa.array([-1], pa.timestamp("us"))),
            {"timestamp": "at"},
            r"timestamp: found 'a time before 1970",
        ),
        (table(id=["a"], at=pa.array([2**62], pa.timestamp("s"))), {"timestamp": "at"}, r"timestamp: found 'a time"),
        (table(id=["a"], at=pa.array([2**58], pa.timestamp("us"))), {}, r"value: found .*a time .*\['at'\]"),
        (table(x=[1], at=pa.array([[-(2**40)]], pa.list_(pa.timestamp("s")))), {"key": ["at"]}, r"key: found .*'at'"),
        (
            table(id=["k" * 1_000_000]),
            {"key": "id", "value": "id"},
            r" found 'a record of 2\d{6} bytes, of which 1000000 are its key', expected at most 1000000",
        ),
        (
            table(x=pa.array([[("kkk", 1), ("kkk", 2)]], pa.map_(pa.string(), pa.int64()))),
            {},
            r"value: found 'a map that has a key twice', expected a row that fits the format json",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(rows, options, says):
    with pytest.raises(InputError, match=rf"^sinks\.out[.:]{says}") as raised:
        records(rows, **options)
    assert "kkk" not in str(raised.value)


def test_it_is_sent_to_executors_and_takes_rows_in_pieces():
    rows = table(id=list(range(CHUNK + 5)))
    sent = pickle.loads(pickle.dumps(form(key="id")))  # noqa: S301 - our own
    found = list(sent.records("out", rows))
    assert [int(record.key or b"") for record in found] == list(range(CHUNK + 5))
    assert list(sent.records("out", rows.slice(0, 0))) == []


pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")


LIMIT, ROWS, LARGE = 64 << 10, 200, 8 << 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces of 64 KiB, in the place of 8 MiB."""
    for module in (record_format, staged_rows):
        monkeypatch.setattr(module, "CHUNK_BYTES", LIMIT)


def rows_of(*sizes: int) -> pa.Table:
    return pa.table(
        {"i": range(len(sizes)), "text": [f"{i:08}".ljust(size, "x") for i, size in enumerate(sizes)]}
    )


def staged(folder, rows: pa.Table):
    file = folder / "staged.parquet"
    file.write_bytes(schemas.parquet(rows, "out"))
    return file


SHAPES = {
    "large": [LARGE] * ROWS,
    "small": [8] * 30_000,
    "small, then large": [8] * 1000 + [LARGE] * ROWS,
    "one that is larger than a piece": [8, 3 * LIMIT, 8],
}


@pytest.mark.parametrize("name", SHAPES)
def test_records_are_encoded_in_pieces(name, monkeypatch):
    pieces: list[pa.Table] = []
    chunk = record_format.RecordFormat._chunk

    def watched(self, sink, rows):
        pieces.append(rows)
        return chunk(self, sink, rows)

    monkeypatch.setattr(record_format.RecordFormat, "_chunk", watched)
    rows = rows_of(*SHAPES[name])
    form = KafkaSink("out", servers="nowhere:9092", key="i").row_check
    assert [record.key for record in form.records("out", rows)] == [str(i).encode() for i in range(len(rows))]
    assert all(piece.nbytes <= LIMIT or piece.num_rows == 1 for piece in pieces)
    assert max(piece.num_rows for piece in pieces) <= record_format.CHUNK


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "small, then large"])
def test_staged_rows_are_read_in_pieces(tmp_path, name):
    rows = rows_of(*SHAPES[name])
    found = list(staged_rows.tables(staged(tmp_path, rows)))
    assert pa.concat_tables(found).equals(rows)
    largest = max(SHAPES[name])
    assert all(table.nbytes <= 2 * LIMIT + largest for table in found)


def test_values_that_a_file_keeps_once_are_large_all_the_same(tmp_path):
    rows = pa.table({"text": ["x" * LARGE] * ROWS})
    file = staged(tmp_path, rows)
    assert file.stat().st_size < 10 * LARGE
    found = list(staged_rows.tables(file))
    assert sum(table.num_rows for table in found) == ROWS
    assert all(table.nbytes <= 2 * LIMIT for table in found)


def test_a_file_without_rows_and_one_with_columns_left_out(tmp_path):
    empty = pa.table({"a": pa.array([], pa.string())})
    assert list(staged_rows.tables(staged(tmp_path, empty))) == []
    rows = pa.table({"a": ["x", "y"], "n": pa.nulls(2)})
    (found,) = staged_rows.tables(staged(tmp_path, rows))
    assert found.equals(rows)


def test_pages_of_large_rows_are_small(tmp_path):
    file = staged(tmp_path, rows_of(*[LARGE] * 2000))  # 16 MiB
    column = pq.ParquetFile(file).metadata.row_group(0).column(1)
    assert column.total_uncompressed_size > 15 << 20
    assert schemas._rows_at_a_time(rows_of(*[LARGE] * 2000)) < 140
    assert schemas._rows_at_a_time(rows_of(*[8] * 2000)) == 1024
    assert schemas._rows_at_a_time(rows_of(8 << 20)) == 1
