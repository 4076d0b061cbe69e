"""Ranges of a partition: what is read, where a read ends, and what ends it with an error."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from taskplace.errors import InputError
from taskplace.spark.kafka import reading
from taskplace.spark.kafka.clients import Clients
from taskplace.spark.kafka.decoding import RECORD, Decoder
from taskplace.spark.kafka.formats import Raw
from taskplace.spark.kafka.options import ClientOptions
from tests.support.decoding import decode
from tests.support.mock_kafka import mock_kafka as mock_kafka

MANY = [(b"k%d" % number, b"v%d" % number) for number in range(50)]


def pieces(cluster, start: int, end: int, *, partition: int = 1, seconds: float = 20.0, **options):
    given = ClientOptions("test", cluster.bootstrap, options)
    return list(reading.read_range("t", partition, start, end, options=given, seconds=seconds))


def read(cluster, start: int, end: int, **more):
    return [row for piece in pieces(cluster, start, end, **more) for row in piece.to_pylist()]


def offsets(rows) -> list[int]:
    return [row["offset"] for row in rows]


@pytest.mark.parametrize("start, end", [(0, 50), (0, 1), (7, 31), (49, 50), (20, 20)])
def test_a_range_is_read_from_its_start_to_before_its_end(mock_kafka, start, end):
    mock_kafka.send("t", 1, *MANY)
    mock_kafka.send("t", 2, (b"other", b"partition"))
    rows = read(mock_kafka, start, end)
    assert offsets(rows) == list(range(start, end))
    assert [(row["key"], row["value"]) for row in rows] == MANY[start:end]


def test_ranges_follow_each_other_and_may_be_repeated(mock_kafka):
    mock_kafka.send("t", 1, *MANY)
    found = [offsets(read(mock_kafka, *each)) for each in ((0, 10), (10, 30), (10, 30), (0, 50))]
    assert found == [list(range(0, 10)), list(range(10, 30)), list(range(10, 30)), list(range(50))]
    assert len(reading._open) == 1  # one consumer for all of them


def test_records_have_all_columns(mock_kafka):
    mock_kafka.send("t", 1, (None, None), timestamp=1_356_998_400_123, headers=[("h", b"x"), ("n", None)])
    mock_kafka.send("t", 1, (b"", b""))
    null, empty = read(mock_kafka, 0, 2)
    assert list(null) == RECORD.names
    assert (null["key"], null["value"], null["topic"], null["partition"]) == (None, None, "t", 1)
    assert null["timestamp"].isoformat() == "2013-01-01T00:00:00.123000+00:00"
    assert null["timestampType"] == 0
    assert null["headers"] == [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]
    assert (empty["key"], empty["value"], empty["headers"]) == (b"", b"", None)


class _NoText(str):
    """A name of a header whose bytes are not UTF-8."""

    def encode(self, *_: str) -> bytes:
        return b"\xff"


def test_a_time_and_headers_that_cannot_be_read_do_not_end_a_read(mock_kafka):
    """They were a raw OverflowError and a SystemError, without topic and offset."""
    from kafka import KafkaProducer

    nanos, micros = 1_700_000_000_000_000_000, 1_700_000_000_000_000
    for time in (nanos, micros):
        mock_kafka.send("t", 1, (b"k", b"v"), timestamp=time, headers=[("h", b"x")])
    producer = KafkaProducer(bootstrap_servers=mock_kafka.bootstrap, api_version=(2, 0, 0), acks=1)
    producer.send("t", b"v", b"k", headers=[(_NoText("h"), b"x")], partition=1, timestamp_ms=1).get(20)
    producer.close()
    for _ in range(3):  # the interpreter specializes calls that it has often made
        mock_kafka.send("t", 2, *MANY, headers=[("h", b"x")])
    read(mock_kafka, 0, 150, partition=2)
    (piece,) = pieces(mock_kafka, 0, 3)
    assert piece["timestamp"].cast("int64").to_pylist() == [None, 1000 * micros, 1000]
    assert piece["timestampType"].to_pylist() == [0, 0, 0]
    assert piece["headers"].to_pylist()[1:] == [[{"key": "h", "value": b"x"}], [None]]
    decoder = Decoder(value=Raw("v"), include=["timestamp", "headers"], bad_records="dead_letters")
    assert decode(decoder, piece).dead_letters["offset"].to_pylist() == [0, 1, 2]
    assert decode(Decoder(value=Raw("v"), include=["offset"]), piece).rows.num_rows == 3


def test_an_offset_that_is_not_there_is_an_error(mock_kafka):
    mock_kafka.send("t", 1, *MANY)
    with pytest.raises(
        InputError, match=r"^topic 't', partition 1, offset 777: found 'records that the broker no lon"
    ):
        read(mock_kafka, 777, 800)
    assert offsets(read(mock_kafka, 48, 50)) == [48, 49]


def test_a_read_without_progress_ends(mock_kafka):
    mock_kafka.send("t", 1, *MANY)
    with pytest.raises(InputError, match=r"partition 1, offset 50: found 'no record and no end after 1 s"):
        read(mock_kafka, 40, 51, seconds=1.0)


@pytest.mark.parametrize("limit", ["PIECE_ROWS", "PIECE_BYTES"])
def test_a_long_range_comes_in_pieces(mock_kafka, monkeypatch, limit):
    monkeypatch.setattr(reading, "CHUNK", 9)
    monkeypatch.setattr(reading, limit, 10)
    mock_kafka.send("t", 1, *MANY)
    found = pieces(mock_kafka, 3, 48)
    assert len(found) > 2 and {piece.schema for piece in found} == {RECORD}
    assert [offset for piece in found for offset in piece["offset"].to_pylist()] == list(range(3, 48))


def test_a_range_that_is_not_read_to_its_end_leaves_no_consumer_in_it(mock_kafka, monkeypatch):
    monkeypatch.setattr(reading, "PIECE_ROWS", 1)
    mock_kafka.send("t", 1, *MANY)
    options = ClientOptions("test", mock_kafka.bootstrap, {})
    with closing(reading.read_range("t", 1, 0, 50, options=options, seconds=20.0)) as left:
        next(left)
    assert offsets(read(mock_kafka, 20, 30)) == list(range(20, 30))


def test_a_consumer_is_closed_when_its_password_has_changed(mock_kafka, tmp_path):
    mock_kafka.send("t", 1, *MANY)
    password, used = tmp_path / "password", []
    for secret in ("first", "first", "second"):
        password.write_text(secret)
        assert offsets(read(mock_kafka, 0, 2, **{"sasl.password_file": str(password)})) == [0, 1]
        (opened,) = reading._open.values()
        used.append(opened.consumer)
    assert used[0] is used[1] is not used[2]
    with pytest.raises(RuntimeError, match=r"[Cc]losed"):
        used[0].poll(0)
    assert offsets(read(mock_kafka, 0, 2)) == [0, 1]
    assert len(reading._open) == 2  # two sources with different options have a consumer each


@pytest.mark.parametrize("given, wait", [({}, 10), ({"fetch.wait.max.ms": 700}, 700)])
def test_a_range_does_not_wait_for_the_last_fetch_of_the_range_before(mock_kafka, monkeypatch, given, wait):
    """A broker holds a fetch back that finds no record, and a consumer sends no other one meanwhile."""
    properties, consumer = [], reading.Consumer
    monkeypatch.setattr(reading, "Consumer", lambda given: properties.append(given) or consumer(given))
    mock_kafka.send("t", 1, *MANY)
    assert offsets(read(mock_kafka, 48, 50, **given)) == [48, 49]
    assert [each["fetch.wait.max.ms"] for each in properties] == [wait]


def message(offset: int, error: int | None = None) -> SimpleNamespace:
    said = None if error is None else KafkaError(error, "says")
    return SimpleNamespace(
        offset=lambda: offset,
        error=lambda: said,
        key=lambda: b"",
        value=lambda: b"",
        timestamp=lambda: (0, -1),
        headers=lambda: None,
    )


def reached(*events, start: int = 10, end: int = 20) -> tuple[bool, list[int]]:
    of = reading._Range("t", 1, start, end, Clients(ClientOptions("test", "nowhere:1", {}), "t"))
    of.take(events)
    return of.done, of.piece()["offset"].to_pylist()


@pytest.mark.parametrize(
    "events, done, kept",
    [
        ([message(10), message(19)], True, [10, 19]),  # compaction has left a gap
        ([message(10), message(12)], False, [10, 12]),
        ([message(12), message(25)], True, [12]),  # a gap at the end: the next record is behind it
        (
            [message(12), message(20, KafkaError._PARTITION_EOF)],
            True,
            [12],
        ),  # a gap or a marker, and no record behind
        ([message(12), message(19, KafkaError._PARTITION_EOF)], False, [12]),
        ([message(20)], True, []),  # nothing is left of the range
        ([message(5), message(10)], False, [10]),  # records before the start are not of the range
    ],
)
def test_where_a_range_ends(events, done, kept):
    assert reached(*events) == (done, kept)


def test_a_marker_of_a_transaction_moves_the_position():
    of = reading._Range("t", 1, 10, 20, Clients(ClientOptions("test", "nowhere:1", {}), "t"))
    assert of.take([message(18)]) and not of.done
    assert not of.moved_to(19) and not of.done
    assert of.moved_to(20) and of.done


@pytest.mark.parametrize(
    "code, message_",
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "found 'no such topic any more', .* it was deleted; restore it"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "allow `Read` on the topic"),
        (KafkaError._AUTHENTICATION, "check the credentials in the options"),
        (KafkaError.OFFSET_OUT_OF_RANGE, "offset 10: found 'records that the broker no longer has"),
    ],
)
def test_errors_that_end_a_read(code, message_):
    with pytest.raises(InputError, match=message_):
        reached(message(-1, code))


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT])
def test_errors_that_pass(code):
    assert reached(message(-1, code)) == (False, [])
