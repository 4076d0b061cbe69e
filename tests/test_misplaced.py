"""A key at a wrong place of a file: the error says where it belongs, and not which known key it resembles."""

from __future__ import annotations

import copy

import pytest
import yaml
from taskplace.spec.application import Settings, section_keys

from taskplace.errors import ConfigError
from taskplace.misplaced import _MEANT, check_entries, check_sections, check_topology

FILE = """
application: {id: orders}
topology:
  sources:
    orders: {key: customer, partitions: 4}
  stores:
    seen: {}
  nodes:
    once: {process: orders, processor: deduplicate, options: {by: {customer: string, id: long}}}
    spent: {process: once, processor: aggregate, options: {by: {customer: string}, aggregates: {n: count}, window: {}}}
    totals: {sink: spent}
input:
  orders: {format: parquet, path: in, schema: "id long, customer string"}
output:
  totals: {path: out}
"""
SOURCES, NODES, SPENT = "topology/sources/orders", "topology/nodes", "topology/nodes/spent/options"


def judged(path: str, value: object = 1) -> None:
    """Set one key of the file, and look at the whole of it."""
    document = copy.deepcopy(yaml.safe_load(FILE))
    *way, last = path.split("/")
    at = document
    for key in way:
        at = at.setdefault(key, {})
    at[last] = value
    topology = document["topology"]
    sections = section_keys()
    check_topology(topology, sections)
    check_entries("input", document["input"], {"orders": "topology.sources.orders"}, sections)
    check_entries("output", document["output"], {"totals": "topology.nodes.totals"}, sections)
    Settings.from_mapping(document)


@pytest.mark.parametrize(
    ("path", "home"),
    [
        (f"{SOURCES}/event_time", "`topology.sources.orders.options`: `options: {event_time: ...}`"),
        (f"{SOURCES}/delay", "`topology.sources.orders.options`: `options: {delay: ...}`"),
        (f"{SOURCES}/path", "`input.orders`: `input: {orders: {path: ...}}`"),
        ("topology/stores/seen/key", "`topology.stores.seen.options`: `options: {key: ...}`"),
        (f"{NODES}/once/by", "`topology.nodes.once.options`: `options: {by: ...}`"),
        (f"{NODES}/once/store", "`topology.nodes.once.options`: `options: {store: ...}`"),
        (f"{NODES}/once/partitions", "a node with `repartition`"),
        (f"{NODES}/totals/path", "`output.totals`: `output: {totals: {path: ...}}`"),
        (f"{NODES}/once/options/stores", "one level higher, beside `options`"),
        (f"{SPENT}/grace", "`topology.nodes.spent.options.window`: `window: {grace: ...}`"),
        (f"{SPENT}/window/ttl", "one level higher, beside `window`"),
        ("placement/snapshot.interval", "`runtime`: `runtime: {snapshot.interval: ...}`"),
        ("runtime/num_standby_replicas", "`placement`: `placement: {num.standby.replicas: ...}`"),
        ("runtime/checkpoint.dir", "`checkpoint`: `checkpoint: {dir: ...}`"),
        ("num.standby.replicas", "`placement`: `placement: {num.standby.replicas: ...}`"),
        ("master", "`spark`: `spark: {master: ...}`"),
        ("nodes", "`topology`: `topology: {nodes: ...}`"),
        ("spark.executor.memory", "`spark.conf`: `spark: {conf: {spark.executor.memory: ...}}`"),
        ("spark/conf/num.standby.replicas", "`placement`: `placement: {num.standby.replicas: ...}`"),
        ("spark/conf/runtime.snapshot.interval", "`runtime`: `runtime: {snapshot.interval: ...}`"),
        ("spark/conf/master", "one level higher, beside `conf`"),
        ("spark/spark.executor.memory", "`spark.conf`: `conf: {spark.executor.memory: ...}`"),
        ("input/orders/servers", "`input.orders.kafka`: `kafka: {servers: ...}`"),
        ("input/orders/key", "`topology.sources.orders`: `topology: {sources: {orders: {key: ...}}}`"),
        (
            "input/orders/event_time",
            "`topology.sources.orders.options`: `topology: {sources: {orders: {options: ",
        ),
        ("input/orders/trigger.interval", "`spark`: `spark: {trigger.interval: ...}`"),
        ("input/orders/trigger_interval", "`spark`: `spark: {trigger.interval: ...}`"),
        (
            "input/orders/spark.executor.memory",
            "`spark.conf`: `spark: {conf: {spark.executor.memory: ...}}`",
        ),
        ("input/orders/options/trigger.interval", "`spark`: `spark: {trigger.interval: ...}`"),
        (
            "input/orders/options/event_time",
            "`topology.sources.orders.options`: `topology: {sources: {orders: {options: {event_time: ...}}}}`",
        ),
        (
            "input/orders/options/delay",
            "`topology.sources.orders.options`: `topology: {sources: {orders: {options: {delay: ...}}}}`",
        ),
        (
            "input/orders/options/key",
            "`topology.sources.orders`: `topology: {sources: {orders: {key: ...}}}`",
        ),
        (
            "input/orders/options/partitions",
            "`topology.sources.orders`: `topology: {sources: {orders: {partitions: ...}}}`",
        ),
        (
            "input/orders/kafka/event_time",
            "`topology.sources.orders.options`: `topology: {sources: {orders: {options: {event_time: ...}}}}`",
        ),
        (f"{SOURCES}/num.standby.replicas", "`placement`: `placement: {num.standby.replicas: ...}`"),
        (f"{SOURCES}/options/key", "one level higher, beside `options`"),
        (f"{SOURCES}/options/path", "`input.orders`: `input: {orders: {path: ...}}`"),
        (f"{NODES}/once/num.standby.replicas", "`placement`: `placement: {num.standby.replicas: ...}`"),
        (f"{NODES}/once/options/snapshot.interval", "`runtime`: `runtime: {snapshot.interval: ...}`"),
        (f"{SPENT}/window/trigger.interval", "`spark`: `spark: {trigger.interval: ...}`"),
        ("topology/stores/seen/snapshot.interval", "`runtime`: `runtime: {snapshot.interval: ...}`"),
        ("output/totals/trigger.interval", "`spark`: `spark: {trigger.interval: ...}`"),
        (
            "output/totals/kafka/schema",
            "`topology.nodes.totals`: `topology: {nodes: {totals: {schema: ...}}}`",
        ),
        ("output/totals/topic", "`output.totals.kafka`: `kafka: {topic: ...}`"),
        ("output/totals/schema", "`topology.nodes.totals`: `topology: {nodes: {totals: {schema: ...}}}`"),
    ],
)
def test_the_error_says_where_the_key_belongs(path, home):
    at = path.replace("/", ".")
    with pytest.raises(ConfigError) as caught:
        judged(path)
    in_place = home if home.startswith("one level") else f"in {home}"
    assert str(caught.value).startswith(f"{at}: found a misplaced key, expected it {in_place}")


@pytest.mark.parametrize("option", ["maxFilesPerTrigger", "kafka.group.id", "path", "id", "topic"])
def test_options_of_spark_are_left_to_spark(option):
    judged(f"input/orders/options/{option}")


def test_the_letters_of_a_format_may_be_large():
    document = {"orders": {"format": "Parquet", "options": {"delay": "1 hour"}}}
    with pytest.raises(ConfigError, match="found a misplaced key"):
        check_entries("input", document, {"orders": "topology.sources.orders"})


def test_a_source_that_is_not_known_may_have_options_of_any_name():
    document = {"orders": {"format": "my.source", "options": {"key": 1, "delay": 2, "trigger.interval": 3}}}
    check_entries("input", document, {"orders": "topology.sources.orders"}, section_keys())


def test_an_aggregate_beside_the_others_belongs_among_them():
    with pytest.raises(ConfigError, match=r"expected it in `.*\.aggregates`: `aggregates: \{most: \.\.\.\}`"):
        judged(f"{SPENT}/most", {"max": "cents", "type": "int64"})


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("trigger", "a misplaced key, expected it in `spark`: `spark: {trigger.interval: ...}`"),
        ("name", "a misplaced key, expected it in `application`: `application: {id: ...}`"),
        ("state-dir", "a misplaced key, expected it in `state`: `state: {dir: ...}`"),
        ("sinks", "a misplaced key, expected it in `topology`: `topology: {nodes: ...}`"),
        ("runtime/state_dir", "a misplaced key, expected it in `state`: `state: {dir: ...}`"),
        ("runtime/state.dir", "a misplaced key, expected it in `state`: `state: {dir: ...}`"),
        ("spark/checkpoint", "a misplaced key, expected it in `checkpoint`: `checkpoint: {dir: ...}`"),
        ("application/name", "an unknown key, expected `id`"),
        ("checkpoint/path", "an unknown key, expected `dir`"),
        ("placement/standbys", "an unknown key, expected `num.standby.replicas`"),
        ("report/ui", "an unknown key, expected `ui.port`"),
    ],
)
def test_a_word_that_people_try_is_known(path, says):
    with pytest.raises(ConfigError) as caught:
        judged(path)
    assert str(caught.value) == f"{path.replace('/', '.')}: found {says}"


def test_the_words_that_people_try_are_no_keys_and_what_they_mean_is_one():
    sections = section_keys()
    for section, words in _MEANT.items():
        assert not {*words} & {key.replace(".", "_") for key in (sections[section] if section else sections)}
        for home, meant in words.values():
            assert not sections[home] or meant in sections[home]


@pytest.mark.parametrize("path", ["application/dir", "kil", "runtime/snapshot.intervall"])
def test_a_key_with_no_home_or_two_is_left_to_its_section(path):
    with pytest.raises(ConfigError, match="found an unknown key"):
        judged(path)


def test_the_keys_of_the_file_are_in_their_places():
    judged("topology/sources/orders/partitions", 8)
    check_sections({"spark": {"conf": {"spark.ui.enabled": False}}}, {"spark": ["conf"]})


def test_a_section_with_one_key_shows_its_form():
    with pytest.raises(
        ConfigError, match=r"a mapping of keys to values; write `checkpoint: \{dir: \.\.\.\}`"
    ):
        judged("checkpoint", "/data")
