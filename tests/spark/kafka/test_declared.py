"""Topics in YAML: `kafka` in an entry of `input` makes the reader of the source, or one error with the path."""

from __future__ import annotations

import inspect
import json

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.errors import ConfigError, InputError
from taskplace.model.keys import read_struct
from taskplace.spark.kafka import declared
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Avro, Json, Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec import nodes
from taskplace.spec.application import Settings
from topology import TopologyError

SECRET = "hunter2"
DELAY = {"type": "record", "name": "Delay", "fields": [{"name": "minutes", "type": "int"}]}
ENTRY = {
    "topic": "departures",
    "servers": "nowhere:9092",
    "key": {"format": "raw", "column": "tailnum", "kind": "string"},
    "value": {"format": "json", "columns": {"minutes": "int", "at": "timestamp"}},
    "include": {"key": "bytes"},
}


def declared_records(path, entry):
    return declared.declared_records(path, read_struct(nodes.KafkaInput, entry, path))


def settings(entry: object, *overrides: str, **source: object) -> Settings:
    return Settings.from_mapping(
        {
            "application": {"id": "delays"},
            "topology": {
                "sources": {"flights": {"key": "tailnum", "partitions": 4, **source}},
                "nodes": {
                    "flown": {
                        "process": "flights",
                        "processor": "aggregate",
                        "options": {"by": {"tailnum": "string"}, "aggregates": {"worst": {"max": "minutes"}}},
                    },
                },
            },
            "input": {"flights": entry},
        },
        overrides,
    )


def reader(*given: object, **source: object) -> KafkaRecords:
    return YamlApplication(settings(*given, **source)).topology().build().node("flights").options["reads"]


def test_the_source_reads_the_topic_itself():
    reads = reader({"kafka": ENTRY}, options={"key_bytes": "bytes"})
    assert reads.topic == "departures"
    assert reads.columns.names == ["tailnum", "minutes", "at", "bytes"]


def test_yaml_has_the_arguments_of_the_classes():
    arguments = {*inspect.signature(KafkaRecords).parameters, *inspect.signature(Decoder).parameters}
    assert set(nodes.KafkaInput.__struct_fields__) == arguments - {"decoder"} | {"servers_env"}
    for name, made in {"json": Json, "avro": Avro, "raw": Raw}.items():
        assert set(nodes.FORMATS[name].__struct_fields__) == set(inspect.signature(made).parameters)


@pytest.mark.parametrize("given", ["mapping", "text", "file"])
def test_an_avro_schema_is_a_mapping_or_json_or_a_file(given, tmp_path):
    schema = DELAY if given == "mapping" else json.dumps(DELAY)
    if given == "file":
        (tmp_path / "delay.avsc").write_text(json.dumps(DELAY))
        schema = str(tmp_path / "delay.avsc")
    value = {"format": "avro", "schema": schema, "writers": {7: schema}}
    made = declared_records("p", {**ENTRY, "value": value})
    assert made.columns.field("minutes").type == pa.int32()


def test_the_environment_may_have_the_brokers(monkeypatch):
    entry = {name: value for name, value in ENTRY.items() if name != "servers"} | {"servers_env": "BROKERS"}
    with pytest.raises(
        ConfigError, match=r"^p\.servers_env: found 'BROKERS', expected an environment variable"
    ):
        declared_records("p", entry)
    monkeypatch.setenv("BROKERS", "one:9092,two:9092")
    assert "'bootstrap.servers': 'one:9092,two:9092'" in repr(declared_records("p", entry))
    with pytest.raises(ConfigError, match=r"^p\.servers_env: .* expected `servers` or `servers_env`"):
        declared_records("p", ENTRY | entry)


def test_dead_letters_are_separated_and_tombstones_delete(tmp_path):
    separate = "taskplace.spark.kafka.dead_letters"
    delays = {"process": "flights", "processor": f"{separate}:GoodRecords"}
    entry = ENTRY | {"bad_records": "dead_letters"}
    models = {
        "topic": "models",
        "servers": "nowhere:9092",
        "key": ENTRY["key"],
        "value": {"format": "json", "columns": {"model": "string"}},
        "tombstone": "gone",
    }
    join = {"by": {"tailnum": "string"}, "columns": {"model": "string"}, "deleted": "gone"}
    document = {
        "application": {"id": "delays"},
        "topology": {
            "sources": {name: {"key": "tailnum", "partitions": 4} for name in ("flights", "models")},
            "nodes": {
                "good": delays,
                "bad": delays | {"processor": f"{separate}:DeadLetters"},
                "with-model": {
                    "join_table": ["good", "models"],
                    "processor": "table-join",
                    "options": join,
                },
                "letters": {"sink": "bad"},
            },
        },
        "input": {"flights": {"kafka": entry}, "models": {"kafka": models}},
        "output": {"letters": {"path": str(tmp_path)}},
    }
    built = YamlApplication(Settings.from_mapping(document)).topology().build()
    assert [len(each.sources) for each in built.subtopologies] == [2]
    del document["input"]["models"]["kafka"]["tombstone"]
    with pytest.raises(
        ConfigError, match=r"^topology\.nodes\.with-model\.options\.deleted: found \"no column 'gone'"
    ):
        YamlApplication(Settings.from_mapping(document))


WRONG = [
    ({"topic": None}, r"\.topic: found nothing"),
    ({"servers": None}, r"\.servers: found nothing, .*`servers_env`"),
    ({"vale": {}}, r"\.vale: found an unknown key, .*'value'"),
    ({"value": "json"}, r"\.value: found 'json', expected \{format"),
    (
        {"value": {"format": "jsn", "columns": {}}},
        r"\.value\.format: found 'jsn', expected one of json, avro, raw",
    ),
    (
        {"value": {"format": "json", "columns": {"a": "strng"}}},
        r"\.value\.columns\.a: found 'strng', .*'string'",
    ),
    (
        {"key": {"format": "raw", "column": "tailnum", "kind": "int"}},
        r"\.key\.kind: found 'int', .*int16, int32",
    ),
    (
        {"value": {"format": "avro", "schema": "no-such.avsc"}},
        r"\.value\.schema: found 'no-such\.avsc', .*No such",
    ),
    ({"value": {"format": "avro", "schema": DELAY, "writers": {"7": DELAY}}}, r"\.value\.writers: "),
    ({"include": ["offst"]}, r"\.include\.offst: .*'offset'"),
    ({"include": ["key"], "tombstone": "KEY"}, r": found \"two columns 'KEY'\""),
    ({"starting": "newest"}, r"\.starting: found 'newest'"),
    ({"options": {"enable.auto.commit": True}}, r"\.options\.enable\.auto\.commit: "),
    ({"options": {"sasl.password": SECRET}}, r"\.options\.sasl\.password: .*`sasl\.password_env`"),
    (
        {"key": {"format": "raw", "column": "tail", "kind": "string"}},
        r": found \"no column 'tailnum'\".*'tail'",
    ),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_mistake_has_its_path(change, says):
    with pytest.raises(ConfigError, match=rf"^input\.flights\.kafka{says}") as raised:
        YamlApplication(settings({"kafka": {**ENTRY, **change}}))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "source", "says"),
    [
        ({"kafka": ENTRY, "format": "kafka"}, {}, r"^input\.flights\.format: .* nothing beside `kafka`"),
        ({"kafka": ENTRY}, {"options": {"reads": 3}}, r"^topology\.sources\.flights\.options\.reads: "),
        ({"kafka": ENTRY}, {"options": {"key_bytes": "minutes"}}, r"^topology\.sources\.flights\.options\.key_bytes: "),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_topology_is_refused_without_a_broker(given, source, says):
    with pytest.raises((ConfigError, TopologyError), match=says):
        YamlApplication(settings(given, **source))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            6,
            r"^topology\.sources\.flights\.partitions: found 4, expected 6, the partitions of topic 'departures'",
        ),
        (
            InputError(
                "topic 'departures'", found="UNKNOWN_TOPIC_OR_PART", expected="a topic", hint="make it"
            ),
            r"^input\.flights\.kafka: found 'UNKNOWN_TOPIC_OR_PART', expected a topic; make it$",
        ),
    ],
)
def test_the_topic_is_looked_at_when_the_stream_starts(answer, says, monkeypatch):
    def partitions(self: KafkaRecords) -> int:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(KafkaRecords, "partitions", partitions)
    with pytest.raises(ConfigError, match=says):
        YamlApplication(settings({"kafka": ENTRY})).sources(None)


def test_without_partitions_the_brokers_are_asked(monkeypatch):
    asked = []

    def partitions(self: KafkaRecords) -> int:
        asked.append(self.topic)
        return 6

    monkeypatch.setattr(KafkaRecords, "partitions", partitions)
    built = YamlApplication(settings({"kafka": ENTRY}, partitions=None)).topology().build()
    assert built.partitions["flights"] == 6
    assert asked == ["departures"]
    assert YamlApplication(settings({"kafka": ENTRY})).topology().build().partitions["flights"] == 4
    assert asked == ["departures"], "a declared count is compared when the stream starts"
