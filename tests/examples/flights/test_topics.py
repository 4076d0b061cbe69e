"""The topics of the flights job: what is sent is what the sources of `conf/kafka-flights.yaml` read."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from examples.flights import topics
from examples.flights.on_kafka import INPUTS, KafkaFlights
from examples.flights.topology import FLIGHT_COLUMNS, MEASURES
from taskplace.errors import ConfigError
from taskplace.spec.application import Settings
from tests.support.mock_kafka import mock_kafka as mock_kafka

ROOT = Path(__file__).resolve().parents[3]
START = dt.datetime(2013, 1, 1, 5, tzinfo=dt.timezone.utc)
HOURS = [START + dt.timedelta(hours=hour) for hour in range(6)]
INTEGERS = [name for name, kind in FLIGHT_COLUMNS.items() if kind == "int"]
FLIGHTS = [
    {"origin": "JFK", "time_hour": hour, "carrier": "UA", "tailnum": None if at == 2 else f"N{at}"}
    | dict.fromkeys(INTEGERS, at)
    | {"dep_delay": None if at == 2 else at - 3}
    for at, hour in enumerate(HOURS)
]
WEATHER = [
    {"origin": "JFK", "time_hour": hour, "visib": 10.0, "precip": 0.1, "wind_speed": None} for hour in HOURS
]


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where the file of the schema is


def application(
    monkeypatch: pytest.MonkeyPatch, *overrides: str, servers: str = "nowhere:9092"
) -> KafkaFlights:
    monkeypatch.setenv("KAFKA_SERVERS", servers)
    return KafkaFlights(Settings.load("conf/kafka-flights.yaml", overrides))


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    zone, integer = pa.timestamp("us", tz="UTC"), pa.int32()
    kinds = {"time_hour": zone, **dict.fromkeys(INTEGERS, integer), **dict.fromkeys(MEASURES, pa.float64())}
    for name, rows in {"flights": FLIGHTS, "weather": WEATHER}.items():
        (tmp_path / name).mkdir()
        schema = pa.schema([(column, kinds.get(column, pa.string())) for column in rows[0]])
        for number in range(2):  # files in their order
            part = pa.Table.from_pylist(rows[3 * number : 3 * number + 3], schema)
            pq.write_table(part, tmp_path / name / f"{number:02}.parquet")
    return tmp_path


def raw(topic: str, records: list[topics.Record]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": [topic] * len(records),
            "partition": [0] * len(records),
            "offset": list(range(len(records))),
        }
    )


def test_records_are_decoded_to_the_rows_of_the_input(prepared, monkeypatch):
    reads = application(monkeypatch)._reads
    sent = {
        "flights": list(topics.flight_records(prepared)),
        "weather": list(topics.weather_records(prepared)),
    }
    for topic, rows in {"flights": FLIGHTS, "weather": WEATHER}.items():
        found = reads[topic]._decoder.frame(raw(topic, sent[topic])).drop_columns(["kafka_key"])
        assert sorted(found.column_names) == sorted(rows[0])
        assert found.to_pylist() == [{name: row[name] for name in found.column_names} for row in rows]
    # A flight and the weather of its hour have equal keys, byte for byte.
    assert [record.key for record in sent["flights"]] == [record.key for record in sent["weather"]]


def test_what_is_sent_is_consumed_in_the_order_of_its_partition(mock_kafka):
    records = [topics.Record(b'{"id":%d}' % (at % 5), b'{"n":%d}' % at) for at in range(50)]
    topics.send(mock_kafka.bootstrap, {"t": records})
    found = topics.consumed(mock_kafka.bootstrap, "t")
    assert sorted(row["n"] for row in found) == list(range(50))
    assert topics.latest(found, ("id",), "n") == {(at,): {"id": at, "n": 45 + at} for at in range(5)}


def test_own_keys_and_those_of_the_sources_are_checked(monkeypatch):
    made = application(monkeypatch, "input.files=3", "input.flights.kafka.topic=other")
    assert (made._prepared.files, made._reads["flights"].topic) == (3, "other")
    assert made._partitions == dict.fromkeys(INPUTS, 12)
    for override, says in {
        "input.repeated=2": r"^input\.repeated: found 2, expected a share",
        "input.file=3": r"^input\.file: found 3, expected a mapping",
        "input.weather.kafka.starting=now": r"^input\.weather\.kafka\.starting: found 'now'",
    }.items():
        with pytest.raises(ConfigError, match=says):
            application(monkeypatch, override)
