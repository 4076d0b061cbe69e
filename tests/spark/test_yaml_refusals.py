"""Every mistake in an application's YAML is one error that begins with the path of the key that was written."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from taskplace.durations import _deprecated
from taskplace.errors import ConfigError, InputError, TaskplaceError
from taskplace.spark.compile.programs import programs
from taskplace.spark.yaml_application import YamlApplication, declared_topology
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
checkpoint: {{dir: /nowhere/checkpoint}}
state: {{dir: /nowhere/state}}
"""
NODES = "topology.nodes"


def keep(context, rows):
    return rows


def first(key, rows, state):
    return state, rows


def clean(context, rows, *, least: int = 0):
    return rows


class Latest:
    def __init__(self, column: str, limit: int = 3) -> None:
        self.column = column

    def process(self, context, rows):
        return rows


def show(df, batch_id):
    """The function of a sink."""


lonely = 3

#: A line changes keys of `WHOLE` ("gone": removes one; `;;` between several; `@`: topology.nodes.). The error begins
#: with the path behind the arrow; without one, with the path that was changed. Behind `~` is what it says as well.
REFUSED = """
topology.name = x
topology.sourcs = {}
topology.sources = {}
topology.sources.orders.partitons = 3
topology.sources.orders.partitions = gone
topology.sources.orders.options.event_time = att
topology.sources.orders.options.event_time = cents
topology.sources.orders.options.delayy = 1 s
topology.sources.orders.options = gone -> @once.options.ttl
topology.sources.people.topic = 5
topology.sources.people.key = customr -> input.customers.schema
topology.stores.own.logged = 5
topology.stores.own.options.key.customer = innt
topology.stores.own.options.value = gone
topology.stores.unused = {}
@once.processor = dedupliate
@once.processor = HERE:claen ~ did you mean 'HERE:clean'?
@once.processor = HERE:lonely ~ expected a function or a class
@once.processor = no_such_module:x
@once.options = 3
@once.options.ttl = soon
@once.options.ttl = gone
@once.options.time = gone
@once.options.time = att
@once.options.store = a b
@once.options.store = a/b
@once.options.by = [id]
@once.options.by.id = array<int>
@once.options.by.id = lnog
@once.options.by.idd = long
@once = {process: orders, processor: "HERE:clean"} -> @spent.options.window.column
@with-city.options.by.customer = long
@with-city.options.columns.tags = string
@with-city.options.deleted = city
@with-city.options.order_by = [tags] -> @with-city.options.order_by.tags
@by-city.key = cty
@by-city.key = gone ;; @by-city.options = {delay: 5 s} -> @by-city.options.delay
@again = {repartition: people, key: tags} -> @again.key
@again = {repartition: orders, key: cents} ;; input.orders.schema = "id long, customer string, cents decimal(9, 2), \
at timestamp" -> @again.key
@spent.options.by = {}
@spent.options.window.size = 1 hou
@spent.options.window.column = cents
@spent.options.window.column = changed
@spent.options.window.emit = last
@spent.options.aggregates = {}
@spent.options.aggregates.mean.avg = a -> @spent.options.aggregates.mean
@spent.options.aggregates.n = sum
@spent.options.aggregates.n = {maxx: a}
@spent.options.aggregates.n = {max: a, min: a}
@spent.options.aggregates.n = {max: 3} -> @spent.options.aggregates.n.max
@spent.options.aggregates.n = {sum: ""} -> @spent.options.aggregates.n.sum
@spent.options.aggregates.n = {max: a, type: in64} -> @spent.options.aggregates.n.type
@spent.options.aggregates.n = {max: cents, type: timestamp}
@spent.options.aggregates.7 = x
@spent.options.aggregates.by = count
@kept.processor = HERE:first
@kept.options = {event_time: 5} -> @kept.options.event_time
@kept.options = {lest: 1} -> @kept.options.lest
@kept.options = {rows: 1} -> @kept.options.rows
@mine.options.event_time = best
@mine.options.function = x
@mine.options.function = HERE:show
@mine.options.state = {CUSTOMER: long} -> @mine
@more = {process: once} -> @more.processor
@more = {process: people, processor: "HERE:Latest"} -> @more.options.column
@more = {process: people, processor: "HERE:Latest", options: {colum: x}} -> @more.options.colum
@one = {process: orders, processor: count, options: {by: {customer: string, id: long}}} ;; @more = {process: one, \
processor: count, options: {by: {customer: string}}} -> @more ~ over_changes
@one = {process: orders, processor: count, options: {by: {customer: string, id: long}}} ;; @more = {process: one, \
processor: count, options: {by: {customer: string, idd: long}, over_changes: true}} -> @more.options.by.idd
@more = {sink: mien} -> @more.sink
@totals.sink = spend ~ did you mean 'spent'?
@totals.sink = null
@totals.schema.n = int
@totals.schema.n = innt
@totals.schema.n = gone -> @totals.schema
@totals.options = {shema: id long} -> @totals.options.shema
@totals.options = {event_time: at} -> @totals.options.event_time
@more = {sink: kept, schema: {batch_id: long}} ;; output.more = {path: /nowhere/more} -> @more.schema.batch_id
input = {} -> input.orders
input.order = {}
input.orders = 3
input.orders.format = null
input.orders.path = null
input.orders.path = " "
input.orders.schema = null
input.orders.schema = customer strng -> input.orders.schema.customer
input.orders.schema = id long, costumer string -> input.orders.schema
input.orders.schema = id long, customer string, cents long, Cents int, at timestamp -> input.orders.schema
input.orders.schema = id long, customer string, at timestamp -> @spent.options.aggregates.cents
input.orders.schema = {customer: strin} -> input.orders.schema.customer
input.orders.schema = {idd: long, customer: string, cents: long, at: timestamp} -> @once.options.by.id
input.orders.schema = k string, x struct<a:innt> -> input.orders.schema.x.a ~ did you mean 'int'?
input.orders.schema = k string, x decimal(50,2) -> input.orders.schema.x ~ a decimal of 1 to 38 digits
input.orders.schema = "k string, struct<a:int>" -> input.orders.schema.struct
input.orders.options = {a: [1]} -> input.orders.options.a
input.customers.schema.tags = array<innt> -> input.customers.schema.tags.element
input.customers.schema.tags = map<lnog,int> -> input.customers.schema.tags.key
topology.stores = {} ;; topology.sources.orders = {partitions: 4} ;; topology.nodes = {totals: {sink: orders}, bests: \
{sink: people}} ;; input.orders.schema = "tags map<string, string>" -> input.orders.schema
topology.sources.CUSTOMERS = {key: customer, partitions: 4} ;; input.CUSTOMERS = \
{format: csv, path: /nowhere/c, schema: customer string} -> topology.sources.CUSTOMERS
topology.sources.more = {topic: CUSTOMERS, key: customer, partitions: 4} ;; input.CUSTOMERS = \
{format: csv, path: /nowhere/c, schema: customer string} -> topology.sources.more.topic
output = {} -> output.totals
output.total = {path: x}
output.totals.pth = x ~ did you mean 'path'
output.totals.path = file://nas/x
output.totals.path = s3://bucket/x
output.totals = {foreach: "HERE:shwo"} -> output.totals.foreach
output.totals = {foreach: "HERE:first"} -> output.totals.foreach
output.bests.path = /nowhere/x/../totals -> output.(totals|bests).path ~ a separate target for each sink
output.totals.path = /nowhere/bests/x -> output.(totals|bests).path ~ a separate directory
output.bests.path = /nowhere/orders/more ~ the input directory of input.orders
output.bests.path = /nowhere/checkpoint/more ~ the checkpoint (checkpoint.dir)
output.bests.path = file:///nowhere/state ~ the state directory (state.dir)
checkpoint.dir = /nowhere/cp*
checkpoint.dir = /nowhere/state/cp -> state.dir
state.dir = /nowhere/checkpoint/state
input.orders.path = /nowhere
input.orders.path = /nowhere/state/x
input.orders.path = /nowhere/*
input.orders.path = /nowhere/{totals,bests}* -> output.(totals|bests).path ~ the input directory of input.orders
placement = {rack.aware.assignment.strategy: min_traffic} -> placement.rack.aware.assignment.strategy
placement = {task.assignor.class: high_availabilty} -> placement.task.assignor.class ~ 'high_availability'
runtime = {weights: {"9_9": 1.5}} -> runtime.weights.9_9
chaos = [{batch: 1, kill: executor-with-most-actve}] -> chaos[0].kill
"""


def changed(changes: str) -> dict[str, Any]:
    """Return `WHOLE` with changed keys."""
    document = yaml.safe_load(WHOLE)
    for change in changes.split(" ;; "):
        path, _, value = change.partition(" = ")
        *way, last = path.split(".")
        at = document
        for key in way:
            at = at[key]
        if value == "gone":
            del at[last]
        else:
            at[int(last) if last.isdigit() else last] = yaml.safe_load(
                value.replace("*C", "{format: csv, path: /nowhere/c, schema: customer string}")
            )
    return document


def application(document: dict[str, Any]) -> YamlApplication:
    return YamlApplication(Settings.from_mapping(document))


def lines(table: str) -> list[str]:
    return table.replace("@", f"{NODES}.").replace("HERE", HERE).replace("\\\n", "").strip().splitlines()


@pytest.mark.parametrize("line", lines(REFUSED))
def test_a_mistake_is_one_error_with_its_path(line):
    line, _, says = line.partition(" ~ ")
    changes, _, path = line.partition(" -> ")
    with pytest.raises((InputError, TopologyError)) as caught:
        application(changed(changes))
    found = str(caught.value)
    wanted = path or changes.partition(" = ")[0]
    assert found.startswith(f"{wanted}: ") or re.match(f"{wanted}: ", found), found
    assert says in found
    assert "\n" not in found


ACCEPTED = """
input.orders.path = s3://nowhere/more
input.orders.schema = id long, customer string COMMENT 'who, if anybody', cents long, at timestamp, d interval day
input.orders.schema = "id: long, customer: varchar(9), cents dec(9, 2) NOT NULL, at timestamp, x int DEFAULT (1 + 2)"
input.orders.schema = 'id long, customer string, cents long, at timestamp, z variant, y struct<a: int COMMENT "x">'
input.orders.select = [id, who as customer]
spark = {conf: {spark.sql.caseSensitive: true}} ;; input.orders.schema = "id long, customer string, cents long, \
Cents int, at timestamp"
output.totals = {foreach: "HERE:show"}
"""


@pytest.mark.parametrize("line", lines(ACCEPTED))
def test_what_is_right_or_not_known_is_let_through(line):
    application(changed(line))


def test_names_of_files_are_not_too_long():
    for change, says in (
        (f"{NODES}.{'x' * 256} = {{sink: spent}}", "a sink's name of 256 bytes, expected at most 255"),
        (f"output.totals.path = out/{'x' * 256}", "; a name in it has 256 bytes, over 255"),
    ):
        with pytest.raises((InputError, TopologyError), match=says):
            application(changed(change))


def listed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with its nodes as a list."""
    nodes = document["topology"]["nodes"]
    document["topology"]["nodes"] = [{"name": name} | node for name, node in nodes.items()]
    return document


def test_a_list_of_nodes():
    application(listed(changed("checkpoint.dir = /nowhere/cp")))
    with pytest.raises(InputError, match=r"^topology\.nodes\[0\]\.options\.by\.idd: found \"no column 'idd'"):
        application(listed(changed(f"{NODES}.once.options.by.idd = long")))


def test_a_class_of_ones_own_needs_a_topology_to_read_one():
    bare = Settings.from_mapping({"application": {"id": "x", "class": "a:B"}})
    with pytest.raises(ConfigError, match=r"^topology: found nothing, expected sources and nodes$"):
        declared_topology(bare)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("topology.sources.orders.options.delay = 10", "topology.sources.orders.options.delay"),
        (f"{NODES}.kept.options = {{event_time: changed, delay: 10}}", f"{NODES}.kept.options.delay"),
        (f"{NODES}.once.options.ttl = 10", f"{NODES}.once.options.ttl"),
        (f"{NODES}.spent.options.window.grace = 10", f"{NODES}.spent.options.window.grace"),
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_a_number_without_a_unit_is_named_by_its_path(change, where, as_list):
    """And only once: the start, which finds it again, does not know the file."""
    _deprecated.cache_clear()
    document = changed(change)
    # The topic of the source has another name than the source.
    document["topology"]["sources"]["orders"]["topic"] = "ordered"
    document["input"]["ordered"] = document["input"].pop("orders")
    if as_list:
        for at, name in enumerate(document["topology"]["nodes"]):
            where = where.replace(f"{NODES}.{name}.", f"{NODES}[{at}].")
        listed(document)
    with pytest.warns(DeprecationWarning) as told:
        programs(application(document).topology().build())
    assert [str(each.message).partition(":")[0] for each in told] == [where]


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def put(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a copy of a document with another value at a place."""
    inner = wrong = copy.deepcopy(document)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = copy.deepcopy(value)
    return wrong


@pytest.mark.parametrize(
    "value", [5, -1, 10**30, None, [1], {"zz": 1}, True, 1.5, "", " ", float("nan"), "innt"], ids=repr
)
def test_any_value_at_any_place_is_taken_or_refused_in_one_line(value):
    document = yaml.safe_load(WHOLE)
    for path in places(document):
        try:
            application(put(document, path, value))
        except (ConfigError, TopologyError) as error:
            assert "\n" not in str(error), path
            assert not str(error).startswith(("node '", "stores.", "sinks.", "sources.", "nodes.")), path
        except TaskplaceError as error:
            pytest.fail(f"{path}: {error!r}")


def test_an_unknown_field_is_refused_at_every_level():
    """All but `options` of a source of Spark, and `conf`: those are Spark's own."""
    pytest.importorskip("confluent_kafka")
    key = "{format: raw, column: customer, kind: string}, value: {format: json, columns: {at: timestamp}}"
    document = changed(
        f"input.customers = {{kafka: {{topic: t, servers: 'b:1', key: {key}}}}} ;; runtime = {{}} ;; placement = {{}}"
        " ;; output.bests = {kafka: {topic: o, servers: 'b:1', key: customer}} ;; report = {} ;; spark = {}"
    )
    names = {"sources", "stores", "nodes", "input", "output", "columns", "by", "key", "value", "schema"} | {
        "state"
    }
    for path in ((), *places(document)):
        at = document
        for part in path:
            at = at[part]
        if isinstance(at, dict) and "aggregates" not in path and not (path and path[-1] in names):
            with pytest.raises((InputError, TopologyError), match="unknwn: found an unknown "):
                application(put(document, (*path, "unknwn"), 1))
