"""Every error of `run --check` names the path in the YAML of the key that was written, whatever is wrong with it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from taskplace.durations import _deprecated
from taskplace.errors import ConfigError, TaskplaceError
from taskplace.spark.compile.programs import programs
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
from topology import TopologyError

HERE = __name__
WHOLE = f"""
application: {{id: everything}}
topology:
  sources:
    orders: {{key: customer, partitions: 4, options: {{event_time: at, delay: 10 minutes}}}}
    people: {{topic: customers, key: customer, partitions: 4}}
  stores:
    own: {{options: {{key: {{customer: string}}, value: {{b: long}}}}}}
  nodes:
    once:
      process: orders
      processor: deduplicate
      options: {{by: {{customer: string, id: long}}, ttl: 1 day, time: at}}
    with-city:
      join_table: [once, people]
      processor: table-join
      options:
        by: {{customer: string}}
        columns: {{city: string, changed: timestamp}}
        order_by: [changed]
        deleted: gone
    by-city: {{repartition: with-city, key: city, partitions: 2}}
    spent:
      process: by-city
      processor: aggregate
      options:
        by: {{city: string}}
        window: {{column: at, size: 1 hour, emit: final}}
        aggregates: {{n: count, cents: {{sum: cents, type: int64}}, mean: {{avg: cents}}}}
    kept: {{process: people, processor: "{HERE}:keep", stores: [own]}}
    mine:
      process: people
      processor: per-key
      options: {{function: "{HERE}:first", by: {{customer: string}}, state: {{best: long}}, output: {{best: long}}}}
    totals: {{sink: spent, schema: {{city: string, window_start: timestamp, n: long, cents: long, mean: double}}}}
    bests: {{sink: mine}}
input:
  orders: {{format: parquet, path: /nowhere/orders, schema: "id long, customer string, cents long, at timestamp"}}
  customers:
    format: csv
    path: /nowhere/customers
    schema: {{customer: string, city: string, changed: timestamp, gone: boolean, tags: "array<int>"}}
output:
  totals: {{path: /nowhere/totals}}
  bests: {{path: /nowhere/bests}}
"""
NODES = "topology.nodes"


def keep(context, rows):
    return rows


def first(key, rows, state):
    return state, rows


def changed(path: str, value: Any) -> dict[str, Any]:
    """The document with another value; a path is split by slashes, as keys have dots."""
    document = yaml.safe_load(WHOLE)
    inner, *rest = document, *path.split("/")
    for key in rest[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[rest[-1]]
    else:
        inner[rest[-1]] = value
    return document


def message(document: dict[str, Any]) -> str:
    with pytest.raises((TaskplaceError, TopologyError)) as caught:
        YamlApplication(Settings.from_mapping(document))
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("topology/nodes/once/options/by/id", "array<int>", f"{NODES}.once.options.by.id: found 'list<"),
        ("topology/nodes/once/options/by/idd", "long", f"{NODES}.once.options.by.idd: found \"no column 'idd'\""),
        ("topology/nodes/once/options/ttl", "soon", f"{NODES}.once.options.ttl: found 'soon'"),
        ("topology/nodes/once/options/time", "att", f"{NODES}.once.options.time: found \"no column 'att'\""),
        ("topology/nodes/once/options/store", "a b", f"{NODES}.once.options.store: found 'a b', expected 1 to 200"),
        ("topology/nodes/with-city/options/by/customer", "long", f"{NODES}.with-city.options.by.customer: found "),
        ("topology/nodes/with-city/options/columns/tags", "string", f"{NODES}.with-city.options.columns.tags: found"),
        ("topology/nodes/with-city/options/deleted", "city", f"{NODES}.with-city.options.deleted: found \"'city'"),
        ("topology/nodes/with-city/options/order_by", ["tags"], f"{NODES}.with-city.options.order_by.tags: found"),
        ("topology/nodes/by-city/key", "cty", f"{NODES}.by-city.key: found \"no column 'cty'\""),
        ("topology/nodes/spent/options/by", {}, f"{NODES}.spent.options.by: found {{}}, expected columns"),
        ("topology/nodes/spent/options/window/size", "1 hou", f"{NODES}.spent.options.window.size: found '1 hou'"),
        ("topology/nodes/spent/options/window/column", "cents", f"{NODES}.spent.options.window.column: found"),
        ("topology/nodes/spent/options/window/emit", "last", f"{NODES}.spent.options.window.emit: found 'last'"),
        ("topology/nodes/spent/options/aggregates/mean/avg", "a", f"{NODES}.spent.options.aggregates.mean"),
        ("topology/nodes/spent/options/aggregates/n", {"sum": ""}, f"{NODES}.spent.options.aggregates.n.sum: found ''"),
        ("topology/nodes/spent/options/aggregates/7", "x", f"{NODES}.spent.options.aggregates.7: found 'x'"),
        (
            "topology/nodes/kept/processor",
            f"{HERE}:first",
            f"{NODES}.kept.processor: found 'a function with the parameters (key,",
        ),
        ("topology/nodes/kept/options", {"event_time": 5}, f"{NODES}.kept.options.event_time: found 5"),
        ("topology/nodes/mine/options/event_time", "best", f"{NODES}.mine.options.event_time: found 'best'"),
        ("topology/nodes/totals/schema/n", "int", f"{NODES}.totals.schema.n: found 'int64', expected int32"),
        ("topology/nodes/totals/schema/n", "innt", f"{NODES}.totals.schema.n: found 'innt', expected a type"),
        ("topology/nodes/totals/schema/n", ..., f"{NODES}.totals.schema: found \"no column 'n'\""),
        ("topology/nodes/more", {"sink": "mien"}, f"{NODES}.more.sink: found 'mien'"),
        ("topology/sources/orders/options/event_time", "att", "topology.sources.orders.options.event_time: found"),
        ("topology/sources/orders/options/delayy", "1 s", "topology.sources.orders.options.delayy: found"),
        ("topology/sources/orders/partitions", ..., "topology.sources.orders.partitions: found nothing"),
        ("topology/sources/people/topic", 5, "topology.sources.people.topic: found 5"),
        ("topology/sources/people/key", "customr", "input.customers.schema: found \"no column 'customr'\""),
        ("topology/stores/own/logged", 5, "topology.stores.own.logged: found 5, expected true or false"),
        ("topology/stores/own/options/key/customer", "innt", "topology.stores.own.options.key.customer: found 'innt'"),
        ("topology/stores/own/options/value", ..., "topology.stores.own.options.value: found nothing"),
        ("topology/stores/unused", {}, "topology.stores.unused: no node uses it"),
        ("input/orders/path", " ", "input.orders.path: found ' '"),
        ("input/customers/schema/tags", "array<innt>", "input.customers.schema.tags.element: found 'innt'"),
        ("output/bests", {"path": "/nowhere/totals/x"}, "output.totals.path: found"),
        ("runtime", {"weights": {"9_9": 1.5}}, "runtime.weights.9_9: found an unknown key"),
        ("chaos", [{"batch": 1, "kill": "executor-with-most-actve"}], "chaos[0].kill: found 'executor-with-most-ac"),
    ],
)  # fmt: skip
def test_the_path_of_what_was_written(path, value, says):
    found = message(changed(path, value))
    assert found.startswith(says)
    assert "\n" not in found


def test_a_list_of_nodes():
    document = yaml.safe_load(WHOLE)
    nodes = document["topology"]["nodes"]
    document["topology"]["nodes"] = [{"name": name} | node for name, node in nodes.items()]
    YamlApplication(Settings.from_mapping(copy.deepcopy(document)))
    document["topology"]["nodes"][0]["options"]["by"]["idd"] = "long"
    assert message(document).startswith("topology.nodes[0].options.by.idd: found \"no column 'idd'\"")


@pytest.mark.parametrize(
    ("name", "fields", "where"),
    [("CUSTOMERS", {}, "CUSTOMERS"), ("more", {"topic": "CUSTOMERS"}, "more.topic")],
)
def test_topics_that_differ_only_by_case(name, fields, where):
    document = changed(f"topology/sources/{name}", {"key": "customer", "partitions": 4, **fields})
    document["input"]["CUSTOMERS"] = document["input"]["customers"]
    assert message(document).startswith(f'topology.sources.{where}: found "a topic with the same name as ')


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("topology/sources/orders/options/delay", 10, "topology.sources.orders.options.delay"),
        (
            "topology/nodes/kept/options",
            {"event_time": "changed", "delay": 10},
            f"{NODES}.kept.options.delay",
        ),
        ("topology/nodes/once/options/ttl", 10, f"{NODES}.once.options.ttl"),
        ("topology/nodes/spent/options/window/grace", 10, f"{NODES}.spent.options.window.grace"),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_a_number_without_a_unit_is_named_by_its_path(path, value, where, listed):
    """And only once: the start, which finds it again, does not know the file."""
    _deprecated.cache_clear()
    document = changed(path, value)
    nodes = document["topology"]["nodes"]
    # The topic of the source has another name than the source.
    document["topology"]["sources"]["orders"]["topic"] = "ordered"
    document["input"]["ordered"] = document["input"].pop("orders")
    if listed:
        place = {f"{NODES}.{name}": f"{NODES}[{at}]" for at, name in enumerate(nodes)}
        where = next((where.replace(a, b) for a, b in place.items() if where.startswith(f"{a}.")), where)
        document["topology"]["nodes"] = [{"name": name} | node for name, node in nodes.items()]
    with pytest.warns(DeprecationWarning) as told:
        application = YamlApplication(Settings.from_mapping(document))
        programs(application.topology().build())
    assert [str(each.message).partition(":")[0] for each in told] == [where]


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


VALUES = [5, -1, 10**30, None, [1], {"zz": 1}, True, 1.5, "", " ", float("nan"), "innt"]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_any_value_at_any_place_is_taken_or_refused_in_one_line(value):
    document = yaml.safe_load(WHOLE)
    for path in places(document):
        wrong = copy.deepcopy(document)
        inner = wrong
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = copy.deepcopy(value)
        try:
            YamlApplication(Settings.from_mapping(wrong))
        except (ConfigError, TopologyError) as error:
            assert "\n" not in str(error), path
            assert not str(error).startswith(("node '", "stores.", "sinks.", "sources.", "nodes.")), path
        except TaskplaceError as error:
            pytest.fail(f"{path}: {error!r}")
