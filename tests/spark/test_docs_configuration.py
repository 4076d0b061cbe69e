"""docs/configuration.md has the options as the code takes them; its examples are valid."""

from __future__ import annotations

import copy
import inspect
import json
import re
import sys

import pyarrow as pa
import pytest
import yaml

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.spark.compile.forms import EVENT_TIME_OPTIONS
from taskplace.spark.compile.partition_columns import (
    DEFAULT_PARTITIONER,
    PARTITION_OPTIONS,
    partitioned_topics,
)
from taskplace.spark.compile.programs import event_times

from taskplace import yaml_fields
from taskplace.cli import main
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.sink import KafkaSink, form_of_records
from taskplace.spark.kafka.sink_topics import REPLICAS
from taskplace.spark.processors import Tumbling
from taskplace.spark.registry import Registry, signatures
from tests.support.pages import ROOT
from topology import Topology

PAGE = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
ORDERS = "id long, customer string, cents long, at timestamp"
FILE = {
    "application": {"id": "x"},
    "topology": {
        "sources": {
            "orders": {"key": "customer", "partitions": 4, "options": {"event_time": "at"}},
            "customers": {"key": "customer", "partitions": 4},
        },
        "nodes": {"totals": {"sink": "orders"}, "places": {"sink": "customers"}},
    },
    "input": {
        "orders": {"format": "parquet", "path": "in/orders", "schema": ORDERS},
        "customers": {
            "format": "parquet",
            "path": "in/customers",
            "schema": "customer string, city string, since timestamp, gone boolean",
        },
    },
    "output": {"totals": {"path": "out/totals"}, "places": {"path": "out/places"}},
}
OWN = """
def largest(key, rows, state):
    return state, rows


def large(context, rows, *, least):
    return rows
"""


def examples() -> dict[str, dict]:
    """Return the entry of each example, by the heading above it."""
    found = {}
    for part in PAGE.split("\n### ")[1:]:
        heading = part.partition("\n")[0]
        for block in re.findall(r"^```yaml\n(.*?)^```$", part, re.M | re.S):
            found[heading] = yaml.safe_load(block)
    return found


EXAMPLES = examples()


def document(heading: str) -> dict:
    """Return an application with an example in its place."""
    made = copy.deepcopy(FILE)
    ((name, entry),) = EXAMPLES[heading].items()
    if "input" in heading:
        made["input"][name] = entry
    elif "output" in heading:
        made["output"][name] = entry
    elif "topology.sources" in heading:
        made["topology"]["sources"][name] = entry
    else:
        made["topology"]["nodes"][name] = entry
        made["topology"]["nodes"]["totals"]["sink"] = name
    return made


@pytest.mark.parametrize("heading", EXAMPLES)
def test_the_examples_are_valid(heading, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_processors", raising=False)
    (tmp_path / "my_processors.py").write_text(OWN)
    for name in FILE["input"]:
        (tmp_path / "in" / name).mkdir(parents=True)
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(document(heading)))
    assert main(["run", "x.yaml", "--check"]) == 0, capsys.readouterr().err
    assert "x.yaml: valid; x: " in capsys.readouterr().out


def test_every_processor_has_a_table_and_an_example():
    for name in Registry():
        heading = f"The processor `{name}` (`topology.nodes.NAME.options`)"
        assert heading in EXAMPLES
        ((_, entry),) = EXAMPLES[heading].items()
        assert entry["processor"] == name
        assert re.search(rf"^### {re.escape(heading)}\n\n.*\n\n\| field ", PAGE, re.M)


def test_the_fields_are_those_that_the_code_takes():
    taken = {name: set(inspect.signature(make).parameters) for name, make in signatures().items()}
    assert {name: set(options) for name, options in yaml_fields.PROCESSOR_OPTIONS.items()} == taken
    assert set(yaml_fields.WINDOW) == set(inspect.signature(Tumbling).parameters)
    assert {*yaml_fields.SOURCE_OPTIONS, "reads"} == {*EVENT_TIME_OPTIONS, *PARTITION_OPTIONS}
    assert set(yaml_fields.OWN_OPTIONS) == set(EVENT_TIME_OPTIONS)


def test_defaults_are_those_of_the_code():
    rows = dict(re.findall(r"^\| `(grace|emit|most_records|how)` \|(.*)\|$", PAGE, re.M))
    assert "| `0` |" in rows["grace"]
    assert "| `changes` |" in rows["emit"]
    assert "| `100000` |" in rows["most_records"]
    assert "| `left` |" in rows["how"]


#: What stands for an argument without a value, by section and field: as the code has it.
IN_WORDS = {
    ("SOURCE_OPTIONS", "delay"): "`0`",
    ("SOURCE_OPTIONS", "key_partitioner"): f"`{DEFAULT_PARTITIONER}`",
    ("SOURCE_OPTIONS", "check_keys"): "`true`, if there is `key_bytes`",
    ("OWN_OPTIONS", "delay"): "`0`",
    ("per-key", "delay"): "`0`",
    ("KAFKA_INPUT", "servers"): "required, or `servers_env`",
    ("KAFKA_OUTPUT", "servers"): "required, or `servers_env`",
    ("KAFKA_OUTPUT", "key_format"): "`raw` for one column of strings or bytes, otherwise `json`",
    ("KAFKA_OUTPUT", "value"): "all columns but those of headers, timestamp and deleted",
    ("KAFKA_OUTPUT", "value_format"): "`json`",
    ("KAFKA_OUTPUT", "timestamp"): "the time of sending",
    ("KAFKA_OUTPUT", "replication"): f"`{REPLICAS}`, or one for each broker if there are fewer",
    **{(name, "store"): "the node's name" for name in yaml_fields.PROCESSOR_OPTIONS},
}


def sections() -> dict[str, yaml_fields.Fields]:
    names = (
        "SOURCE_OPTIONS",
        "STORE_OPTIONS",
        "OWN_OPTIONS",
        "WINDOW",
        "INPUT",
        "KAFKA_INPUT",
        "OUTPUT",
        "KAFKA_OUTPUT",
    )
    plain = {name: getattr(yaml_fields, name) for name in names}
    return {**plain, **yaml_fields.PROCESSOR_OPTIONS, **yaml_fields.KAFKA_FORMATS}


def test_what_stands_for_a_missing_value_is_what_the_code_has():
    given = {
        (section, name): field.default
        for section, fields in sections().items()
        for name, field in fields.items()
        if field.default not in ("", "none")
    }
    assert given == IN_WORDS


def test_a_default_in_words_hides_none_of_an_argument():
    taken = {**signatures(), "KAFKA_INPUT": KafkaRecords, "KAFKA_OUTPUT": KafkaSink}
    for section, make in taken.items():
        parameters = inspect.signature(make).parameters
        for of, name in IN_WORDS:
            if of == section and name not in ("store", "servers"):
                assert parameters[name].default is None, (section, name)


def test_meanings_leave_defaults_to_their_column():
    for section, fields in sections().items():
        for name, field in fields.items():
            assert not re.search(r"\bdefaults?\b", field.meaning), (section, name)


def test_the_page_has_these_defaults():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*?) \| .*? \|$", PAGE, re.M)
    for (_, name), default in IN_WORDS.items():
        assert (name, default) in rows


def test_a_sink_without_these_fields_writes_what_the_page_says():
    given = dict.fromkeys(("key", "key_format", "key_schema", "value", "value_format", "value_schema"))
    given |= {"headers": {"h": "head"}, "timestamp": "at", "deleted": "gone"}
    row = {"k": "a", "n": 1, "head": "x", "at": None, "gone": False}
    for key, bytes_ in (("k", b"a"), ("n", b"1")):
        form = form_of_records(given | {"key": key}, dead_letters=False, max_bytes=1000)
        schema = pa.schema(
            [
                ("k", "string"),
                ("n", "int64"),
                ("head", "string"),
                ("at", pa.timestamp("us")),
                ("gone", "bool"),
            ]
        )
        (record,) = form.records("out", pa.Table.from_pylist([row], schema))
        assert record.key == bytes_
        assert json.loads(record.value) == {"k": "a", "n": 1}


def test_a_source_without_these_options_is_what_the_page_says():
    topology = Topology("t")
    options = {"partition_column": "p", "key_bytes": "raw"}
    topology.source("orders", key="k", partitions=2, event_time="at", **options).sink("out")
    built = topology.build()
    assert event_times(built)["orders"].delay == 0
    (orders,) = partitioned_topics(built).values()
    assert (orders.partitioner, orders.key_bytes) == (DEFAULT_PARTITIONER, "raw"), "its keys are checked"
