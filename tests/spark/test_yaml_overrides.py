"""Overrides of an application's YAML: they say all that a file can say, and where a name ends."""

from __future__ import annotations

import pytest
import yaml

pytest.importorskip("pyspark")


from taskplace.spec.application import Settings

from taskplace.dotted_keys import entries, topology_section
from taskplace.errors import ConfigError
from taskplace.spark.yaml_application import YamlApplication
from tests.support.shop import ORDERS, settings

pytestmark = pytest.mark.usefixtures("own_module")

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
    assert told.topology().build().to_dict() == nested.topology().build().to_dict()
    assert told.topology().build().node("spent").options == nested.topology().build().node("spent").options
    assert (
        told.topology().build().node("totals").target.path
        == nested.topology().build().node("totals").target.path
    )
    assert vars(told._inputs["orders"]) == vars(nested._inputs["orders"])


def test_an_override_needs_no_other_option_beside_it():
    document = yaml.safe_load(ORDERS)
    document["input"]["orders"] = {"format": "parquet", "path": "in"}
    overrides = [
        "input.orders.schema={id: long, customer: string, cents: long, at: timestamp}",
        "input.orders.options.maxFilesPerTrigger=1",
        "topology.sources.orders.options.event_time=at",
    ]
    application = YamlApplication(Settings.from_mapping(document, overrides))
    assert application._inputs["orders"]._options == {"maxFilesPerTrigger": "1"}
    assert application.topology().build().node("orders").options == {"event_time": "at"}


@pytest.mark.parametrize(
    ("given", "nested"),
    [
        ({"a.path": "/x"}, {"a": {"path": "/x"}}),
        ({"a.b": {"path": "/x"}}, {"a.b": {"path": "/x"}}),
        ({"a.b.path": "/x"}, {"a.b": {"path": "/x"}}),
        ({"a.b": {}, "a.b.pth": "/x"}, {"a.b": {"pth": "/x"}}),
        ({"a": {"path": "/x"}, "a.b.path": "/y"}, {"a": {"path": "/x"}, "a.b": {"path": "/y"}}),
        ({"a.options.x.y": 1, "a.options.x.z": 2}, {"a": {"options": {"x.y": 1, "x.z": 2}}}),
        ({"a.options": {"x": 1}, "a.options.y": 2}, {"a": {"options": {"x": 1, "y": 2}}}),
        ({"a": {"path": "/x"}, "a.b": {"path": "/y"}}, {"a": {"path": "/x"}, "a.b": {"path": "/y"}}),
        ({"typo": 3}, {"typo": 3}),
    ],
)
def test_where_a_name_ends(given, nested):
    assert entries("output", given, ("path", "foreach", "options")) == nested


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"a": {"path": 1}, "a.path": 2}, "output.a.path"),
        ({"a": 3, "a.path": 2}, "output.a.path"),
        ({"a.options": {"x": 1}, "a.options.x": 2}, "output.a.options.x"),
    ],
)
def test_what_is_given_flat_and_nested_is_given_twice(given, path):
    with pytest.raises(ConfigError, match=f"^{path}: found 'a key given twice', expected one value$"):
        entries("output", given, ("path", "options"))


def test_flat_nodes_beside_nodes():
    assert topology_section({"nodes": {"o": {"sink": "p"}}, "nodes.p": {"process": "a"}, "other": 1}) == {
        "nodes": {"o": {"sink": "p"}, "p": {"process": "a"}},
        "other": 1,
    }
    with pytest.raises(ConfigError, match=r"^topology\.nodes\.o: found 'a key given twice'"):
        topology_section({"nodes": {"o": {"sink": "p"}}, "nodes.o": {"sink": "q"}})
    with pytest.raises(
        ConfigError, match=r"^topology\.nodes\.o\.sink: found 'a dotted key', expected list entries only"
    ):
        topology_section({"nodes": [{"sink": "p"}], "nodes.o.sink": "q"})
