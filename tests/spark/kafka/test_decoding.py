"""Records are rows or dead letters; tombstones have a mark; an error names the record and shows nothing of it."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.kafka.decoding import DEAD_LETTERS, RECORD, Decoder
from taskplace.spark.kafka.formats import Json, Raw

NAME, ID = Json({"name": "string"}), Raw("id", "string")
AT = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


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
    decoded = decoder.decode(records(GOOD, (None, b"{}")))
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
    assert decoded.dead_letters.num_rows == decoded.tombstones == 0


def test_a_bad_record_stops_with_its_place_and_without_its_contents():
    secret = b'{"name": "a", "x": hunter2}'
    with pytest.raises(InputError) as raised:
        Decoder(value=NAME, key=ID).decode(records(GOOD, (b"secret-key", secret), BAD))
    assert str(raised.value) == (
        "topic 'people', partition 3, offset 102: found 'a record that cannot be decoded, value: JSON: JSON is "
        "malformed: invalid character (byte 19) (2 such records)', expected a record in the formats of the decoder; "
        "bad_records='dead_letters' keeps such records apart, and the stream goes on"
    )
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_bad_records_become_dead_letters_as_they_were():
    decoder = Decoder(value=NAME, key=Raw("id", "int32"), bad_records="dead_letters")
    key = b"\x00\x00\x00\x01"
    decoded = decoder.decode(records((key, b'{"name": "a"}'), (key, BAD[1]), (b"?", b'{"name": "c"}')))
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
    decoded = decoder.decode(records(GOOD, (b"2", None), BAD, (b"3", None)))
    assert decoded.rows.to_pylist() == [
        {"id": "1", "name": "a", "deleted": False},
        {"id": "2", "name": None, "deleted": True},
        {"id": "3", "name": None, "deleted": True},
    ]
    assert decoded.tombstones == 2 and decoded.dead_letters["offset"].to_pylist() == [104]


def test_a_tombstone_whose_key_is_bad_is_a_dead_letter():
    decoder = Decoder(value=NAME, key=Raw("id", "int32"), tombstone="deleted", bad_records="dead_letters")
    decoded = decoder.decode(records((b"?", None)))
    assert (decoded.rows.num_rows, decoded.dead_letters.num_rows, decoded.tombstones) == (0, 1, 0)


def test_a_tombstone_without_a_column_for_the_mark_is_a_bad_record():
    with pytest.raises(
        InputError, match=r"offset 102: .*null \(a tombstone\), and the decoder has no column"
    ):
        Decoder(value=NAME).decode(records(GOOD, (b"2", None)))


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


def test_no_records_are_no_rows():
    decoder = Decoder(value=NAME, key=ID, tombstone="deleted", bad_records="dead_letters")
    assert decoder.frame(RECORD.empty_table()).schema == decoder.frame_columns
    assert decoder.decode(RECORD.empty_table()).rows.num_rows == 0


def test_records_need_no_column_that_nobody_asks_for():
    few = records(GOOD, BAD).select(["key", "value", "topic", "partition", "offset"])
    decoded = Decoder(value=NAME, bad_records="dead_letters").decode(few)
    assert decoded.rows.to_pylist() == [{"name": "a"}]
    assert decoded.dead_letters["headers"].to_pylist() == [None]


@pytest.mark.parametrize(
    "column, message",
    [("headers", 'set the option "includeHeaders"'), ("offset", "expected Kafka's column 'offset'")],
)
def test_a_missing_column_is_an_error(column, message):
    with pytest.raises(InputError, match=message):
        Decoder(value=NAME, include=["headers"]).decode(records(GOOD).drop_columns(column))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"include": ["ofset"]}, "Decoder.include.ofset: found 'ofset'.*did you mean 'offset'"),
        ({"include": "offset"}, "Decoder.include: found 'offset', expected a list of columns"),
        ({"bad_records": "skip"}, "Decoder.bad_records: found 'skip', expected 'stop' or 'dead_letters'"),
        ({"key": Raw("Name")}, "found \"two columns 'name'\", expected each name once"),
        ({"tombstone": "NAME"}, "found \"two columns 'NAME'\""),
        ({"include": {"key": "dead_letter"}, "bad_records": "dead_letters"}, "two columns 'dead_letter'"),
    ],
)
def test_wrong_declarations(given, message):
    with pytest.raises(InputError, match=message):
        Decoder(value=NAME, **given)
