"""Records are rows or dead letters; tombstones have a mark; an error names the record and shows nothing of it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.kafka.dead_letters import DeadLetterFormat
from taskplace.spark.kafka.decoding import DEAD_LETTERS, RECORD, Decoder
from taskplace.spark.kafka.formats import Avro, Json, Raw
from tests.support.decoding import decode

NAME, ID = Json({"name": "string"}), Raw("id", "string")
AT = dt.datetime(2013, 1, 1, tzinfo=dt.timezone.utc)


def records(*pairs: tuple[bytes | None, bytes | None], **more) -> pa.Table:
    """Return records of one partition with these keys and values, at the offsets 100, 102, ..."""
    rows = [
        {
            "key": key,
            "value": value,
            "topic": "people",
            "partition": 3,
            "offset": 100 + 2 * at,
            "timestamp": AT + dt.timedelta(seconds=at),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"%d" % at}],
            **more,
        }
        for at, (key, value) in enumerate(pairs)
    ]
    return pa.Table.from_pylist(rows, RECORD)


GOOD, BAD = (b"1", b'{"name": "a"}'), (b"2", b'{"name": 7}')


def test_rows_have_the_columns_of_key_value_and_record():
    decoder = Decoder(value=NAME, key=ID, include={"offset": "at", "headers": "headers", "timestamp": "time"})
    decoded = decode(decoder, records(GOOD, (None, b"{}")))
    assert decoded.rows.schema == decoder.columns
    assert decoded.rows.to_pylist() == [
        {"id": "1", "name": "a", "at": 100, "headers": [{"key": "h", "value": b"0"}], "time": AT},
        {
            "id": None,
            "name": None,
            "at": 102,
            "headers": [{"key": "h", "value": b"1"}],
            "time": AT + dt.timedelta(seconds=1),
        },
    ]
    assert decoded.dead_letters.num_rows == 0


def test_a_bad_record_stops_with_its_place_and_without_its_contents():
    secret = b'{"name": "a", "x": hunter2}'
    with pytest.raises(InputError) as raised:
        decode(Decoder(value=NAME, key=ID), records(GOOD, (b"secret-key", secret), BAD))
    assert str(raised.value) == (
        "topic 'people', partition 3, offset 102: found 'a record that cannot be decoded, value: JSON: JSON is "
        "malformed: invalid character (byte 19) (2 such records)', expected a record in the formats of the decoder; "
        "or bad_records='dead_letters', to keep such records apart"
    )
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_bad_records_become_dead_letters_as_they_were():
    decoder = Decoder(value=NAME, key=Raw("id", "int32"), bad_records="dead_letters")
    key = b"\x00\x00\x00\x01"
    decoded = decode(decoder, records((key, b'{"name": "a"}'), (key, BAD[1]), (b"?", b'{"name": "c"}')))
    assert decoded.rows.to_pylist() == [{"id": 1, "name": "a"}]
    assert decoded.dead_letters.schema == DEAD_LETTERS
    second, third = decoded.dead_letters.to_pylist()
    assert second == {
        "reason": "value: JSON: Expected `str | null`, got `int` - at `$.name`",
        "key": key,
        "value": BAD[1],
        "topic": "people",
        "partition": 3,
        "offset": 102,
        "timestamp": AT + dt.timedelta(seconds=1),
        "headers": [{"key": "h", "value": b"1"}],
    }
    assert (third["reason"], third["offset"]) == ("key: int32: 1 bytes, expected 4", 104)


def test_tombstones_have_a_mark_and_their_key():
    decoder = Decoder(value=NAME, key=ID, tombstone="deleted", bad_records="dead_letters")
    decoded = decode(decoder, records(GOOD, (b"2", None), BAD, (b"3", None)))
    assert decoded.rows.to_pylist() == [
        {"id": "1", "name": "a", "deleted": False},
        {"id": "2", "name": None, "deleted": True},
        {"id": "3", "name": None, "deleted": True},
    ]
    assert decoded.dead_letters["offset"].to_pylist() == [104]


def test_a_tombstone_without_a_column_for_the_mark_is_a_bad_record():
    with pytest.raises(
        InputError, match=r"offset 102: .*null \(a tombstone\), and the decoder has no column"
    ):
        decode(Decoder(value=NAME), records(GOOD, (b"2", None)))


def test_the_frame_has_one_row_for_each_record_in_order():
    decoder = Decoder(
        value=NAME, key=ID, include=["partition"], tombstone="deleted", bad_records="dead_letters"
    )
    frame = decoder.frame(records(BAD, GOOD, (b"3", None), BAD))
    assert frame.schema == decoder.frame_columns
    assert frame["partition"].to_pylist() == [3, 3, 3, 3]
    assert frame["id"].to_pylist() == [None, "1", "3", None]
    assert frame["deleted"].to_pylist() == [False, False, True, False]
    letters = frame["dead_letter"].to_pylist()
    assert [letter and letter["offset"] for letter in letters] == [100, None, None, 106]


@pytest.mark.parametrize(
    "column, message",
    [("headers", 'set the option "includeHeaders"'), ("offset", "expected Kafka's column 'offset'")],
)
def test_a_missing_column_is_an_error(column, message):
    with pytest.raises(InputError, match=message):
        decode(Decoder(value=NAME, include=["headers"]), records(GOOD).drop_columns(column))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"include": ["ofset"]}, "Decoder.include.ofset: found 'ofset'.*did you mean 'offset'"),
        ({"include": "offset"}, "Decoder.include: found 'offset', expected a list"),
        ({"bad_records": "skip"}, "Decoder.bad_records: found 'skip', expected one of stop, dead_letters"),
        ({"key": Raw("Name")}, "found \"two columns 'name'\", expected each name once"),
        ({"tombstone": "NAME"}, "found \"two columns 'NAME'\""),
        ({"include": {"key": "dead_letter"}, "bad_records": "dead_letters"}, "two columns 'dead_letter'"),
    ],
)
def test_wrong_declarations(given, message):
    with pytest.raises(InputError, match=message):
        Decoder(value=NAME, **given)


# ------------------------------------------------------------------------------------- what nobody vouches for

READABLE = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def of_times(*times: int | None, kinds=0) -> pa.Table:
    """Return good records with these timestamps, in microseconds."""
    table = records(*[GOOD] * len(times), timestampType=kinds)
    micros = pa.array(times, pa.int64()).cast(RECORD.field("timestamp").type)
    return table.set_column(RECORD.get_field_index("timestamp"), "timestamp", micros)


def test_a_time_that_no_row_can_have_is_a_bad_record_if_it_is_read():
    """A reader of a topic has null for what Arrow cannot have, beside a kind of time."""
    table = of_times(*READABLE, READABLE[0] - 1, READABLE[1] + 1, None)
    assert decode(Decoder(value=NAME), table).rows.num_rows == 5
    decoder = Decoder(value=NAME, include={"timestamp": "at"}, bad_records="dead_letters")
    frame = decoder.frame(table)
    assert frame["at"].null_count == 3  # no event time comes of it
    letters = frame["dead_letter"].to_pylist()
    assert [letter and letter["timestamp"] for letter in letters] == [None] * 5
    assert decode(decoder, table).dead_letters["offset"].to_pylist() == [104, 106, 108]
    with pytest.raises(
        InputError, match=r"partition 3, offset 104: .*, timestamp: a time outside of the years"
    ):
        decode(Decoder(value=NAME, include=["timestamp"]), table)
    assert decode(decoder, of_times(None, kinds=-1)).rows["at"].to_pylist() == [
        None
    ]  # a record without a time
    assert decode(decoder, of_times(None).drop_columns("timestampType")).rows.num_rows == 1


def test_headers_that_cannot_be_read_are_a_bad_record_if_they_are_read():
    table = records(GOOD, GOOD, headers=[None])
    assert decode(Decoder(value=NAME), table).rows.num_rows == 2
    decoder = Decoder(value=NAME, include=["headers"], bad_records="dead_letters")
    assert (
        decode(decoder, table).dead_letters["reason"].to_pylist() == ["headers: a name that is not UTF-8"] * 2
    )
    for headers in ([], None, [{"key": "", "value": None}]):
        assert decode(decoder, records(GOOD, headers=headers)).rows["headers"].to_pylist() == [headers]


@pytest.mark.parametrize("required", [False, True])
def test_a_null_key_is_a_bad_record_if_it_is_needed(required):
    key = Json({"id": "string NOT NULL"}) if required else ID
    decoder = Decoder(value=NAME, key=key, tombstone="gone", bad_records="dead_letters")
    table = records((None, b"{}"), (None, None), (b'{"id": "1"}', b"{}"))
    assert decode(decoder, table).dead_letters.num_rows == 2 * required
    letters = decoder.frame(table, needs_key=True)["dead_letter"].to_pylist()
    assert [letter and letter["reason"][:14] for letter in letters] == [
        "key: null, but",
        "key: null, but",
        None,
    ]
    with pytest.raises(InputError, match=r"offset 100: .*key: null, but"):
        Decoder(value=NAME).frame(table, needs_key=True)


KINDS = {
    "d": "decimal(10, 2)", "i": "int8", "f": "float32", "t": "timestamp", "n": "timestamp_ntz", "a": "date",
    "b": "binary", "s": "string", "l": "array<decimal(5, 1)>", "m": "map<string, int64>",
    "r": "struct<x: double, y: array<timestamp>>",
}  # fmt: skip
SCHEMA = {
    "type": "record", "name": "R", "fields": [
        {"name": "d", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "a", "type": {"type": "int", "logicalType": "date"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        {"name": "l", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "m", "type": {"type": "map", "values": "float"}},
    ]
}  # fmt: skip
#: As a writer has it: with a part that contains itself, and that is skipped.
WRITER = SCHEMA | {
    "fields": [
        {
            "name": "skipped",
            "type": {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]},
        },
        *SCHEMA["fields"],
    ]
}
FORMATS = [
    Json(KINDS),
    Avro(SCHEMA),
    Avro(SCHEMA, writers={1: WRITER}),
    Raw("s", "string"),
    Raw("f", "float32"),
]
NUMBERS = [
    "0", "-0", "1e400", "-1e-400", "9" * 40, "9" * 5000, "1.5", "127", "128", "1e5", "0.000000001", "NaN",
    "1e999999999", "1e-999999999", "-1e-999999999",
]  # fmt: skip
TEXTS = [
    '"\\ud800"', '"\\u0000"', '"\U0001f600"', '"NaN"', '"Infinity"', '"1e999999999"', '"sNaN"', '"AAE="', "null",
    '"0001-01-01"', '"0000-01-01T00:00:00Z"', '"9999-12-31T23:59:60Z"', '"2013-01-01T00:00:00.999999999+23:59"',
]  # fmt: skip
values = st.recursive(
    st.sampled_from(NUMBERS + TEXTS),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]")
        | st.dictionaries(st.sampled_from("xyk"), inner, max_size=2).map(
            lambda each: "{" + ",".join(f'"{name}":{value}' for name, value in each.items()) + "}"
        )
    ),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from(sorted(KINDS)), values, max_size=4).map(
    lambda each: ("{" + ",".join(f'"{name}":{value}' for name, value in each.items()) + "}").encode()
)
#: Varints at the limits, and what a datum of the schemas begins with.
pieces = st.sampled_from(
    [b"\0", b"\1", b"\2", b"\4", b"\x7f", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\1", b"\xfe" + b"\xff" * 8 + b"\1",
     b"\2" * 5000, b"\0\0\0\0\1", b"\xc3\x28", b"abc"]
)  # fmt: skip
payloads = (
    st.none()
    | st.binary(max_size=40)
    | objects
    | st.lists(pieces | st.binary(max_size=3), max_size=12).map(b"".join)
    | st.builds(
        lambda text, times: text * times,
        st.sampled_from([b"[", b'{"x":', b'{"l":[', b'{"r":{"y":']),
        st.just(5000),
    )
)
times = st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([*READABLE, READABLE[1] + 1])
headers = st.sampled_from([None, [], [None], [{"key": "\U0001f600\0", "value": None}]])


@given(
    st.sampled_from(FORMATS),
    st.sampled_from(FORMATS[3:]),
    st.lists(st.tuples(payloads, payloads, times, headers), max_size=6),
)
def test_whatever_is_in_a_record_it_is_a_row_or_a_dead_letter(value, key, drawn):
    """Nothing else is raised, and neither the rows nor the letters hold what a later step cannot take."""
    key = Raw("key_column", key.kind)
    rows = [
        {"key": k, "value": v, "topic": "t", "partition": 0, "offset": at, "timestampType": 0, "headers": of}
        for at, (k, v, _, of) in enumerate(drawn)
    ]
    table = pa.Table.from_pylist(rows, RECORD)
    micros = pa.array([time for _, _, time, _ in drawn], pa.int64()).cast(RECORD.field("timestamp").type)
    table = table.set_column(RECORD.get_field_index("timestamp"), "timestamp", micros)
    decoder = Decoder(
        value=value,
        key=key,
        include={"timestamp": "at", "headers": "of"},
        tombstone="gone",
        bad_records="dead_letters",
    )
    decoded = decode(decoder, table)
    assert decoded.rows.num_rows + decoded.dead_letters.num_rows == len(drawn)
    assert decoder.frame(table).schema == decoder.frame_columns
    decoded.rows.validate(full=True)
    decoded.rows.to_pylist()
    sent = list(DeadLetterFormat().records("bad", decoded.dead_letters))
    assert [record.value for record in sent] == [
        drawn[at][1] for at in decoded.dead_letters["offset"].to_pylist()
    ]
    if sent:
        first = decoded.dead_letters["offset"][0].as_py()
        with pytest.raises(InputError, match=f"^topic 't', partition 0, offset {first}: found"):
            decode(replace(decoder, bad_records="stop"), table)
