"""Applications that are YAML alone: what is accepted; no Spark runs."""

from __future__ import annotations

import sys
from functools import partial
from inspect import Signature, signature

import pyarrow as pa
import pytest

from taskplace.errors import ConfigError
from taskplace.spark import ForeachBatch, ParquetSink
from taskplace.spark.compile.programs import programs
from taskplace.spark.processors import PerKey
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import YAML_APPLICATION, Settings
from tests.support.shop import HERE, clean, node, settings

pytestmark = pytest.mark.usefixtures("own_module")


def test_a_file_without_a_class():
    given = settings()
    assert given.application.cls == YAML_APPLICATION
    built = YamlApplication(given).topology().build()
    assert (built.name, len(built.tasks())) == ("orders", 4)
    # State is named after its node, unless it has a name.
    assert [store.name for store in built.stores] == ["once", "spent-by-customer"]
    target = built.node("totals").target
    assert isinstance(target, ParquetSink)
    assert target.path.is_absolute()
    (program,) = programs(built)
    value = {"orders": pa.int64(), "cents": pa.int64(), "worst": pa.float64()}
    assert program.stores["spent-by-customer"].value == pa.schema(value)


def test_ones_own_functions_classes_and_factories():
    per_key = {"by": {"customer": "string"}, "state": {"n": "int"}, "output": {"customer": "string"}}
    nodes = {
        "a": node(f"{HERE}:clean"),
        "b": node(f"{HERE}:clean", least=3),
        "c": node(f"{HERE}:Latest", column="customer"),
        "d": node(f"{HERE}:make_clean()", least=2),
        "e": node("per-key", function=f"{HERE}:longest", **per_key),
    }
    given = settings(topology__nodes={**settings().topology["nodes"], **nodes})
    built = YamlApplication(given).topology().build()
    assert built.node("a").processor is clean
    assert built.node("b").processor.keywords == {"least": 3}
    assert (built.node("c").processor.column, built.node("c").processor.limit) == ("customer", 3)
    assert built.node("d").processor(None, pa.table({"x": [1, 2, 3]})).num_rows == 1
    assert isinstance(built.node("e").processor, PerKey)
    assert built.node("e").stores == ("e",)
    assert built.node("c").stores == ("latest",)


def test_schemas_as_columns_and_sinks_as_functions():
    columns = {"customer": "string", "id": "long", "cents": "long", "items": "array<struct<a: int, b: int>>"}
    given = settings(input__orders__schema=columns, output__totals={"foreach": f"{HERE}:show"})
    application = YamlApplication(given)
    assert isinstance(application.topology().build().node("totals").target, ForeachBatch)


def test_sources_that_are_no_files():
    kafka = {
        "format": "kafka",
        "options": {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"},
        "select": ["cast(key as string) as customer", "cast(value as long) as id", "offset as cents"],
    }
    YamlApplication(settings(input__orders=kafka))
    own = {"format": "com.shop.Source", "schema": "id long, customer string, cents long"}
    YamlApplication(settings(input__orders=own))


def test_state_of_a_node_without_a_name_is_named_after_the_node_too():
    nodes = [
        {"process": "orders", "processor": "deduplicate", "options": {"by": {"customer": "string"}}},
        {"process": "orders-process", "processor": "count", "options": {"by": {"customer": "string"}}},
        {"name": "totals", "sink": "orders-process-2"},
    ]
    built = YamlApplication(settings(topology__nodes=nodes)).topology().build()
    assert [store.name for store in built.stores] == ["orders-process", "orders-process-2"]


@pytest.mark.parametrize("name", ["factory", "given", "of", "function", "self"])
def test_an_option_may_have_any_name(name):
    def own(context, rows, *, option=1):
        return option

    # The same function, with an option of that name.
    *others, option = signature(own).parameters.values()
    parameters = [*others, option.replace(name=name)]
    named = partial(lambda own, context, rows, **options: own(context, rows, option=options[name]), own)
    named.__signature__ = Signature(parameters)
    sys.modules[HERE].own = named
    nodes = {**settings().topology["nodes"], "x": node(f"{HERE}:own", **{name: 5})}
    built = YamlApplication(settings(topology__nodes=nodes)).topology().build()
    assert built.node("x").processor(None, None) == 5


#: `ORDERS`, as overrides of a file that has the rest.
OVERRIDES = [
    "topology.sources.orders.key=customer",
    "topology.sources.orders.partitions=4",
    "topology.nodes.once={process: orders, processor: deduplicate, options: {by: {customer: string, id: long}}}",
    "topology.nodes.spent.process=once",
    "topology.nodes.spent.processor=aggregate",
    "topology.nodes.spent.options.store=spent-by-customer",
    "topology.nodes.spent.options.by={customer: string}",
    "topology.nodes.spent.options.aggregates={orders: count, cents: {sum: cents, type: int64}, worst: {max: cents}}",
    "topology.nodes.totals.sink=spent",
    "input.orders.format=parquet",
    "input.orders.path=in",
    "input.orders.schema=id long, customer string, cents long",
    "input.orders.options.maxFilesPerTrigger=1",
    "output.totals.path=out",
]


def test_overrides_can_say_all_that_a_file_says():
    told = YamlApplication(Settings.from_mapping({"application": {"id": "orders"}}, OVERRIDES))
    nested = YamlApplication(settings())
    given, wanted = told.topology().build(), nested.topology().build()
    assert given.to_dict() == wanted.to_dict()
    assert given.node("spent").options == wanted.node("spent").options
    assert given.node("totals").target.path == wanted.node("totals").target.path
    assert vars(told._inputs["orders"]) == vars(nested._inputs["orders"])


# -- Sources in YAML become streaming data frames, or one error with the path


def declared(entry):
    topology = {"sources": {"a": {"key": "k", "partitions": 2}}}
    given = {"application": {"id": "t"}, "topology": topology, "input": {"a": entry}}
    return YamlApplication(Settings.from_mapping(given))


@pytest.mark.spark
def test_sources_in_yaml_become_streaming_data_frames(spark):
    entry = {"format": "rate", "options": {"rowsPerSecond": 1}, "select": ["value % 10 as k", "value"]}
    (df,) = declared(entry).sources(spark).values()
    assert df.isStreaming
    assert df.columns == ["k", "value"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("entry", "path", "says"),
    [
        ({"format": "com.no.such.Source"}, r"input\.a", "com.no.such.Source"),
        ({"format": "rate", "select": ["valu as k"]}, r"input\.a", "valu"),
        (
            {"format": "rate", "options": {"rowsPerSecond": 0}, "select": ["value as k"]},
            "input.a",
            "rowsPerS",
        ),
        (
            {"format": "json", "path": "in", "schema": "k string comment 'a', b strng"},
            r"input\.a\.schema\.b",
            "found 'strng', expected a Spark type; did you mean 'string'?",
        ),
    ],
)
def test_what_spark_cannot_read_is_one_error_with_the_path(spark, entry, path, says):
    with pytest.raises(ConfigError, match=rf"^{path}: found ") as caught:
        declared(entry).sources(spark)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
