"""Avro with ids of a schema registry, against a stub of one: what is read, what is written, and what goes wrong."""

from __future__ import annotations

import io
import pickle

import fastavro
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka.schema_registry")

from taskplace.errors import ConfigError, InputError
from taskplace.model.keys import read_struct
from taskplace.redaction import is_secret
from taskplace.spark.kafka import declared
from taskplace.spark.kafka.avro import SchemaRegistry, _clients, header
from taskplace.spark.kafka.decoding import RECORD, Decoder
from taskplace.spark.kafka.formats import Avro
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spec import nodes
from tests.support.decoding import decode
from tests.support.kafka_sinks import Stream
from tests.support.kafka_topics import committed
from tests.support.schema_registry import LOGIN
from tests.support.schema_registry import stub_registry as stub_registry


def declared_records(path, entry):
    return declared.declared_records(path, read_struct(nodes.KafkaInput, entry, path))


def record(**fields: object) -> dict:
    of = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Flight", "fields": of}


OLD, NEW = record(id="int"), record(id="long", day={"type": "int", "logicalType": "date"})
NEW["fields"][1]["default"] = 0
ONCE = {"max.retries": 0}


def written(number: int, schema: dict, row: dict) -> bytes:
    out = io.BytesIO(header(number))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def test_data_of_any_writer_is_resolved_to_the_declared_columns(stub_registry):
    old, new = stub_registry.add(OLD), stub_registry.add(NEW)
    form = pickle.loads(pickle.dumps(Avro(NEW, registry=stub_registry.url)))  # noqa: S301 - it is sent to executors
    assert form == Avro(NEW, registry=stub_registry.url) != Avro(NEW)
    payloads = [
        written(old, OLD, {"id": 1}),
        written(new, NEW, {"id": 2, "day": 3}),
        written(old, OLD, {"id": 4}),
    ]
    for _ in range(2):
        rows, faults = form.read(payloads)
        assert rows["id"].to_pylist() == [1, 2, 4] and not faults
        assert rows["day"].cast(pa.int32()).to_pylist() == [0, 3, 0]
    assert stub_registry.asked == [f"GET /schemas/ids/{old}", f"GET /schemas/ids/{new}"]  # once in a process


def test_an_id_that_the_registry_does_not_have_is_a_bad_record(stub_registry):
    many = {"type": "array", "items": "null"}
    ids = [
        999,
        stub_registry.add({}, schemaType="PROTOBUF"),
        stub_registry.add(OLD, references=[{"name": "a", "subject": "a", "version": 1}]),
        stub_registry.add("no type"),
        stub_registry.add(record(id="long", many=many)),
    ]
    form = Avro(NEW, registry={"url": stub_registry.url, **ONCE}, writers={7: OLD})
    payloads = [header(number) + b"\2" for number in ids]
    rows, faults = form.read([*payloads, *payloads, written(7, OLD, {"id": 1}), b"\2", b"\1\0\0\0\7\2"])
    assert rows["id"].to_pylist() == [None] * 10 + [1, None, None]
    assert [faults[at] for at in range(5)] == [faults[at] for at in range(5, 10)]
    for at, why in enumerate(
        ["does not have", "is PROTOBUF; only Avro", "refers to others", "is not read", "take no bytes"]
    ):
        assert faults[at].startswith(f"Avro: written with schema {ids[at]}, ") and why in faults[at]
    assert faults[11] == faults[12] == "Avro: no zero byte and schema id in front"
    assert len(stub_registry.asked) == len(ids)  # a bad id is asked for once, however many records have it


@pytest.mark.parametrize(
    "answer, found",
    [
        (None, "ConnectError: "),
        (
            (503, {"error_code": 50301, "message": "busy"}),
            r"SchemaRegistryError: busy \(HTTP status code 503",
        ),
        ((404, "a page of something else"), "SchemaRegistryError: .*HTTP status code 404"),
        (
            (401, {"error_code": 40101, "message": f"who is {LOGIN}?"}),
            r"SchemaRegistryError: who is \(hidden\)",
        ),
        ((200, ["no schema"]), "AttributeError|TypeError"),
    ],
)
def test_a_registry_that_does_not_answer_is_an_error_and_no_bad_record(stub_registry, answer, found):
    """A dead letter would be a record that is lost, although nothing is wrong with it."""
    number, stub_registry.answer = stub_registry.add(OLD), answer
    given = {"url": stub_registry.url, "basic.auth.user.info": LOGIN, **ONCE}
    decoder = Decoder(value=Avro(NEW, registry=given), bad_records="dead_letters")
    row = {"value": written(number, OLD, {"id": 1}), "topic": "t", "partition": 0, "offset": 5}
    table = pa.Table.from_pylist([row], RECORD)
    if answer is None:
        stub_registry.close()
    with pytest.raises(
        InputError, match=f"^schema registry {stub_registry.url}: found ['\"]?({found})"
    ) as raised:
        decode(decoder, table)
    assert "check `Avro.registry`" in str(raised.value) and "hunter2" not in str(raised.value)
    if answer is not None:  # it is asked again once it answers
        stub_registry.answer = None
        assert decode(decoder, table).rows["id"].to_pylist() == [1]


def test_secrets_are_read_where_a_client_is_made(stub_registry, monkeypatch, tmp_path):
    stub_registry.login, number = LOGIN, stub_registry.add(OLD)
    (tmp_path / "login").write_text(f"{LOGIN}\n")
    payload = written(number, OLD, {"id": 1})
    file = Avro(
        NEW, registry={"url": stub_registry.url, "basic.auth.user.info_file": str(tmp_path / "login"), **ONCE}
    )
    assert file.read([payload])[0]["id"].to_pylist() == [1]
    env = Avro(NEW, registry={"url": stub_registry.url, "basic.auth.user.info_env": "SR_LOGIN", **ONCE})
    with pytest.raises(InputError, match=r"Avro.registry.basic.auth.user.info_env: .*'SR_LOGIN'"):
        env.read([payload])
    monkeypatch.setenv("SR_LOGIN", "me:wrong")
    with pytest.raises(InputError, match="HTTP status code 401"):
        env.read([payload])
    monkeypatch.setenv("SR_LOGIN", LOGIN)
    assert env.read([payload])[0]["id"].to_pylist() == [1]
    given = Avro(NEW, registry={"url": stub_registry.url, "basic.auth.user.info": LOGIN})
    inside = Avro(NEW, registry=stub_registry.url.replace("://", f"://{LOGIN}@"))
    assert "hunter2" not in repr(given) + repr(env) + repr(inside)


@pytest.mark.parametrize(
    "given, message",
    [
        (7, r"Avro.registry: found 'int', expected the URL of a schema registry"),
        ({"timeout": 3}, r"Avro.registry: found 'dict', expected the URL"),
        ({"url": "http://a", "timeout": [3]}, r"Avro.registry.timeout: found 'list'"),
        (
            {"url": "http://a", "auto.register.schemas": "no"},
            r"Avro.registry.auto.register.schemas: found 'no'",
        ),
    ],
)
def test_wrong_declarations(given, message):
    with pytest.raises(InputError, match=message):
        Avro(NEW, registry=given)


# ------------------------------------------------------------------------------------- the sink

ROWS = pa.table({"id": pa.array([1], pa.int64()), "day": pa.array([3], pa.date32())})


def sink(registry: object, **more: object) -> KafkaSink:
    options = {
        "value_format": "avro",
        "value_schema": NEW,
        "key": "id",
        "key_format": "avro",
        "key_schema": "long",
    }
    return KafkaSink("flights", servers="nowhere:9092", registry=registry, **{**options, **more})


def test_a_sink_writes_the_ids_of_its_schemas(stub_registry):
    form = sink(stub_registry.url).row_check
    form.check_rows("out", ROWS)
    assert not stub_registry.asked  # tasks measure records, and ask nobody
    for _ in range(2):
        (out,) = form.records("out", ROWS)
    assert stub_registry.asked == [
        "POST /subjects/flights-key/versions",
        "POST /subjects/flights-value/versions",
    ]
    ids = {subject: number for (subject, _), number in stub_registry.ids.items()}
    assert out.key == header(ids["flights-key"]) + b"\2"
    rows, faults = Avro(NEW, registry=stub_registry.url).read([out.value])
    assert rows.to_pylist() == ROWS.to_pylist() and not faults
    limited = sink(stub_registry.url, options={"message.max.bytes": 1000}).row_check
    measured = next(iter(limited.records("out", ROWS))).size
    assert measured == out.size


@pytest.mark.kafka
def test_a_topic_is_written_and_read_with_a_registry(kafka, tmp_path, stub_registry):
    topic = kafka.topic("flights")
    stream = Stream(tmp_path, kafka.bootstrap, topic, kafka.unique("markers"), kafka.unique("cp"))
    options = {
        "key": "id", "key_format": "avro", "key_schema": "long", "value_format": "avro", "value_schema": NEW,
        "registry": {"url": stub_registry.url, **ONCE},
    }  # fmt: skip
    writer = stream.opened(**options)
    assert stub_registry.asked == [f"POST /subjects/{topic}-{part}/versions" for part in ("key", "value")]
    writer.publish_commit(stream.commit(0, ROWS))
    (message,) = committed(kafka.bootstrap, topic)
    assert Avro(NEW, registry=stub_registry.url).read([message.value()])[0].to_pylist() == ROWS.to_pylist()
    stub_registry.answer = 503, {"error_code": 50301, "message": "busy"}
    _clients.clear()
    with pytest.raises(InputError, match=r"^schema registry http.* that the registry runs and lets"):
        stream.sink(**options).probe()  # before anything is committed


def test_schemas_that_are_only_looked_up_have_to_be_there(stub_registry):
    made = sink({"url": stub_registry.url, "auto.register.schemas": False, **ONCE})
    with pytest.raises(
        InputError, match=r"Subject 'flights-key' not found.*expected the id of the schema of subject"
    ):
        list(made.row_check.records("out", ROWS))
    list(sink(stub_registry.url).row_check.records("out", ROWS))
    assert len(list(made.row_check.records("out", ROWS))) == 1


@pytest.mark.parametrize(
    "more, message",
    [
        (
            {"value_format": "json", "value_schema": None, "key_format": None, "key_schema": None},
            "found 'no Avro'",
        ),
        ({"registry": {"url": 1}}, r"KafkaSink.registry: found 'dict'"),
    ],
)
def test_wrong_options_of_a_sink(more, message):
    with pytest.raises(InputError, match=message):
        sink(**{"registry": "http://a", **more})


def test_yaml_has_the_registry_and_no_secret():
    value = {
        "format": "avro",
        "schema": NEW,
        "registry": {"url": "http://a", "basic.auth.user.info_env": "SR"},
    }
    entry = {"topic": "t", "servers": "nowhere:9092", "value": value}
    assert declared_records("p", entry)._decoder.value.registry == SchemaRegistry("p", value["registry"])
    value["registry"] = {"url": "http://a", "basic.auth.user.info": LOGIN}
    with pytest.raises(ConfigError, match=r"^p.value.registry.basic.auth.user.info: found .*_env`") as raised:
        declared_records("p", entry)
    assert "hunter2" not in str(raised.value)
    assert is_secret("input.flights.kafka.key.registry.basic.auth.user.info")
