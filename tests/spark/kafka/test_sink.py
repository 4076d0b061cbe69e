"""Wrong options of a `KafkaSink` are refused before anything starts, in Python and in YAML; secrets are never shown."""

from __future__ import annotations

import inspect
import os
import re

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.errors import ConfigError, InputError
from taskplace.model.keys import read
from taskplace.redaction import scrubbed
from taskplace.spark import yaml_application
from taskplace.spark.kafka.options import ClientOptions
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.worker import identity
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
from taskplace.spec.nodes import KafkaOutput, Output

SECRET = "hunter2"


REFUSED = [
    ({"topic": ""}, r"topic: found '', expected name"),
    ({"servers": " "}, r"servers: found ' ', expected brokers"),
    ({"key": []}, r"key: found \[\], expected the name of a column"),
    ({"key": ["a", "a"]}, r"key: .*each column once"),
    ({"key_format": "jsn", "key": "a"}, r"key_format: found 'jsn', .*did you mean 'json'"),
    ({"key_format": "raw", "key": ["a", "b"]}, r"key: .*one column for the format raw"),
    ({"value_format": "raw"}, r"value: found nothing, expected one column"),
    ({"value_format": "avro"}, r"value_schema: found 'no schema'"),
    ({"value_schema": '"long"'}, r"value_schema: found 'a schema beside the format json'"),
    ({"value_format": "avro", "value_schema": "no/such.avsc"}, r"value_schema: .*No such file"),
    ({"deleted": "gone"}, r"deleted: .*expected `key` as well"),
    ({"key_format": "json"}, r"key_format: .*expected `key` as well"),
    ({"dead_letters": True, "key": "k"}, r"key: found 'k', expected no `key`: a dead letter is the record"),
    ({"marker_topic": "out"}, r"marker_topic: .*another topic"),
    ({"replication": 0}, r"replication: found 0, expected an integer of at least 1"),
    ({"options": {"transactional.id": "x"}}, r"options\.transactional\.id: .*does not set itself"),
    ({"options": {"metadata.broker.list": "x"}}, r"options\.metadata\.broker\.list: .*`servers`"),
    ({"options": {"transaction.timeout.ms": "soon"}}, r"options\.transaction\.timeout\.ms: found 'soon'"),
    (
        {"options": {"message.max.bytes_file": "x"}},
        r"options\.message\.max\.bytes_file: .* with the value itself",
    ),
    ({"options": {"linger.ms": None}}, r"options\.linger\.ms: found 'NoneType'"),
    (
        {"options": {"sasl.password_env": "X", "sasl.password_file": "x"}},
        r"options\.sasl\.password_\w+: .*one value",
    ),
]


@pytest.mark.parametrize(("options", "says"), REFUSED)
def test_options_that_are_refused(options, says):
    with pytest.raises(InputError, match=rf"^KafkaSink\.{says}"):
        KafkaSink(**{"topic": "out", "servers": "nowhere:9092"} | options)


@pytest.mark.parametrize(
    ("suffix", "named", "remedy"),
    [("env", "variable 'MY_SECRET'", "executorEnv.MY_SECRET"), ("file", "file 'MY_SECRET'", "FileNo")],
)
@pytest.mark.parametrize("process", ["driver", "executor-7"])
def test_a_secret_that_is_missing_is_named_with_the_process_that_lacks_it(
    monkeypatch, suffix, named, remedy, process
):
    """On an executor, which has other variables and files than the driver; and in the log, where secrets are hidden."""
    monkeypatch.setattr(identity, "executor", lambda: (process.removeprefix("executor-"), None))
    options = ClientOptions("KafkaRecords", "nowhere:9092", {f"sasl.password_{suffix}": "MY_SECRET"})
    with pytest.raises(InputError) as raised:
        options.resolved()
    says = rf"^KafkaRecords\.options\.sasl\.password_{suffix}: found nothing, expected .*{named} .*"
    says += rf": {process} on host .*, process {os.getpid()}; .*{remedy}"
    assert re.search(says, scrubbed(str(raised.value)))


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("option", [{"linger.mss": 5}, {"compression.type": "zipp"}, {"acks": 1}])
def test_a_property_that_producers_refuse_is_found_by_the_probe(delivery, option):
    sink = KafkaSink("out", servers="nowhere:9092", delivery=delivery, options=option)
    with pytest.raises(
        InputError, match=r"^KafkaSink\.options: found .*expected properties that librdkafka knows"
    ):
        sink.probe()


def test_what_a_user_sets_comes_before_what_the_sink_sets_by_default(monkeypatch):
    made: list[dict] = []
    monkeypatch.setattr("confluent_kafka.Producer", lambda properties: made.append(properties))
    given = {"partitioner": "consistent_random", "queue.buffering.max.kbytes": 100}
    for options in ({}, given, {"message.max.bytes": 100 << 20}):
        KafkaSink("out", servers="nowhere:9092", options=options)._writer.probe()
    names = ("partitioner", "queue.buffering.max.kbytes")
    found = [tuple(properties[name] for name in names) for properties in made]
    assert found == [("murmur2_random", 65536), ("consistent_random", 100), ("murmur2_random", 204800)]


def test_secrets_come_from_variables_and_files_and_are_never_shown(tmp_path, monkeypatch):
    (tmp_path / "password").write_text(f"{SECRET}\n")
    monkeypatch.setenv("KEY_PASSWORD", f"{SECRET}-2")
    options = ClientOptions(
        "KafkaSink",
        "nowhere:9092",
        {
            "sasl.password_file": str(tmp_path / "password"),
            "ssl.key.password_env": "KEY_PASSWORD",
            "ssl.key.pem": f"{SECRET}-3",
            "sasl.username": "user",
        },
    )
    resolved = options.resolved()
    assert resolved["sasl.password"] == SECRET
    assert resolved["ssl.key.password"] == f"{SECRET}-2"
    assert resolved["ssl.key.pem"] == f"{SECRET}-3"
    assert SECRET not in repr(options)
    assert "user" in repr(options)
    for secret in ("", "-2", "-3"):
        assert SECRET not in options.scrubbed(f"wrong: {SECRET}{secret}!")
    (tmp_path / "password").write_text("other")
    assert options.resolved()["sasl.password"] == "other"


def settings(kafka: object) -> Settings:
    return Settings.from_mapping(
        {
            "application": {"id": "orders"},
            "topology": {
                "sources": {"orders": {"key": "customer", "partitions": 2}},
                "nodes": {
                    "spent": {
                        "process": "orders",
                        "processor": "count",
                        "options": {"by": {"customer": "string"}},
                    },
                    "totals": {"sink": "spent"},
                },
            },
            "input": {"orders": {"format": "parquet", "path": "/data", "schema": {"customer": "string"}}},
            "output": {"totals": {"kafka": kafka}},
        }
    )


def test_yaml_has_the_arguments_of_the_class():
    arguments = set(inspect.signature(KafkaSink).parameters)
    assert arguments == set(KafkaOutput.__struct_fields__) - {"servers_env"}
    given = {"topic": "totals", "servers": "nowhere:9092", "key": "customer", "options": {"linger.ms": 5}}
    sink = yaml_application._target("output.totals", read(Output, {"kafka": given}, "output.totals"))
    assert isinstance(sink, KafkaSink) and "'linger.ms': 5" in repr(sink)


@pytest.mark.parametrize(
    ("kafka", "says"),
    [
        ({"topic": "totals"}, r"kafka\.servers: found nothing"),
        ({"topic": "t", "servers": "s", "kee": "customer"}, r"kafka\.kee: .*did you mean 'key'"),
        ({"topic": "t", "servers": "s", "key": "custmer"}, r"kafka\.key: found 'custmer', .*'customer'"),
        ({"topic": "t", "servers": "s", "value_format": "raw"}, r"kafka\.value: found nothing, expected one column"),
        ({"topic": "t", "servers": "s", "options": {"sasl.password": SECRET}}, r"kafka\.options\.sasl\.password"),
    ],
)  # fmt: skip
def test_mistakes_in_yaml_have_their_path(kafka, says):
    with pytest.raises(ConfigError, match=rf"^output\.totals\.{says}") as raised:
        YamlApplication(settings(kafka))
    assert SECRET not in str(raised.value)


def test_a_property_with_a_wrong_secret_does_not_show_it():
    options = {"ssl.key.password": SECRET, "security.protocol": "ssl", "ssl.key.location": f"/{SECRET}"}
    sink = KafkaSink("out", servers="nowhere:9092", options=options)
    with pytest.raises(InputError, match="ssl") as raised:
        sink.probe()
    assert SECRET not in str(raised.value)
    options = {"ssl.key.password": SECRET}
    sink = KafkaSink("out", servers="nowhere:9092", options=options)
    assert SECRET not in repr(sink)
