"""Overrides of an application's YAML: they say all that a file can say, and where a name ends."""

from __future__ import annotations

import pytest
import yaml

pytest.importorskip("pyspark")


from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
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
    assert application._inputs["orders"]._entry.options == {"maxFilesPerTrigger": "1"}
    assert application.topology().build().node("orders").options == {"event_time": "at"}
