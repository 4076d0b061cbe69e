"""Applications that are YAML alone: every mistake is one error with its path; no Spark runs."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")


from taskplace.errors import ConfigError, InputError
from taskplace.spark.yaml_application import YamlApplication, declared_topology
from taskplace.spec.application import Settings
from tests.support.shop import HERE, node, settings
from topology import TopologyError

pytestmark = pytest.mark.usefixtures("own_module")

TIMED = "id long, customer string, cents long, at timestamp"
TYPES = "topology.nodes.spent.options"
BAD = [
    # what is changed, and what the error says
    ({"topology__name": "x"}, "topology.name: "),
    ({"topology__sourcs": {}}, "topology.sourcs: "),
    ({"topology__sources": {}}, "topology.sources: "),
    ({"topology__sources__orders__partitons": 3}, "topology.sources.orders.partitons: "),
    ({"topology__nodes__totals": {"sink": "spend"}}, "topology.nodes.totals.sink: "),
    ({"topology__nodes__totals": {"sink": "spend"}}, "did you mean 'spent'?"),
    ({"topology__nodes__totals": {"sink": None}}, "topology.nodes.totals.sink: "),
    ({"topology__nodes__once__processor": "dedupliate"}, "topology.nodes.once.processor: "),
    ({"topology__nodes__once__processor": f"{HERE}:claen"}, f"did you mean '{HERE}:clean'?"),
    (
        {"topology__nodes__once__processor": f"{HERE}:lonely"},
        f"topology.nodes.once.processor: found '{HERE}:lonely', expected a function or a class",
    ),
    ({"topology__nodes__once__processor": "no_such_module:x"}, "topology.nodes.once.processor: "),
    ({"topology__nodes__once__options": 3}, "topology.nodes.once.options: "),
    # event time
    ({"topology__nodes__once__options__ttl": "1 day"}, "topology.nodes.once.options.time: "),
    ({"topology__nodes__once__options__time": "at"}, "topology.nodes.once.options.ttl: "),
    (
        {
            "topology__nodes__spent__options__window": {"column": "at", "size": "1 hour"},
            "input__orders__schema": TIMED,
        },
        "topology.nodes.spent.options.window: ",
    ),
    (
        {
            "topology__sources__orders__options": {"event_time": "at"},
            "topology__nodes__spent__options__window": {"column": "seen", "size": "1 hour"},
            "input__orders__schema": f"{TIMED}, seen timestamp",
        },
        "topology.nodes.spent.options.window.column: ",
    ),
    (
        {
            "topology__sources__orders__options": {"event_time": "at"},
            "topology__nodes__once": {"process": "orders", "processor": f"{HERE}:clean"},
            "topology__nodes__spent__options__window": {"column": "at", "size": "1 hour"},
            "input__orders__schema": TIMED,
        },
        "topology.nodes.spent.options.window.column: ",
    ),
    (
        {
            "topology__nodes__more": {
                **node("count", by={"customer": "string", "cents": "long"}),
                "process": "spent",
            }
        },
        "topology.nodes.more: ",
    ),
    ({"topology__nodes__once__options__by": ["id"]}, "topology.nodes.once.options.by: "),
    ({"topology__nodes__once__options__by": {"id": "lnog"}}, "topology.nodes.once.options.by.id: "),
    ({"topology__nodes__once": node(f"{HERE}:clean", lest=1)}, "nodes.once.options.lest: "),
    ({"topology__nodes__once": node(f"{HERE}:clean", rows=1)}, "nodes.once.options.rows: "),
    ({"topology__nodes__once": node(f"{HERE}:Latest")}, "nodes.once.options.column: "),
    ({"topology__nodes__once": node(f"{HERE}:Latest", colum="x")}, "options.colum: "),
    ({"topology__nodes__spent__options__aggregates": {}}, f"{TYPES}.aggregates: "),
    ({"topology__nodes__spent__options__aggregates": {"n": "sum"}}, f"{TYPES}.aggregates.n: "),
    ({"topology__nodes__spent__options__aggregates": {"n": {"maxx": "a"}}}, f"{TYPES}.aggregates.n: "),
    (
        {"topology__nodes__spent__options__aggregates": {"n": {"max": "a", "min": "a"}}},
        f"{TYPES}.aggregates.n: ",
    ),
    ({"topology__nodes__spent__options__aggregates": {"n": {"max": 3}}}, f"{TYPES}.aggregates.n.max: "),
    (
        {"topology__nodes__spent__options__aggregates": {"n": {"max": "a", "type": "in64"}}},
        f"{TYPES}.aggregates.n.type: ",
    ),
    ({"topology__nodes__spent__options__aggregates": {"by": "count"}}, f"{TYPES}.aggregates.by: "),
    ({"topology__nodes__spent__options__store": "a/b"}, "a/b"),
    ({"topology__nodes__more": node("per-key", function="x", by=1, state=1, output=1)}, "options.function: "),
    ({"topology__nodes__more": {"process": "once"}}, "topology.nodes.more.processor: "),
    ({"input": {}}, "input.orders: "),
    ({"input__order": {}}, "input.order: "),
    ({"input__orders": 3}, "input.orders: "),
    ({"input__orders__format": None}, "input.orders.format: "),
    ({"input__orders__path": None}, "input.orders.path: "),
    ({"input__orders__schema": None}, "input.orders.schema: "),
    ({"input__orders__schema": "customer strng"}, "input.orders.schema.customer: "),
    ({"input__orders__schema": {"customer": "strin"}}, "input.orders.schema.customer: "),
    ({"input__orders__schema": "id long, costumer string"}, "input.orders.schema: "),
    ({"input__orders__options": {"a": [1]}}, "input.orders.options.a: "),
    ({"output": {}}, "output.totals: "),
    ({"output__total": {"path": "x"}}, "output.total: "),
    ({"output__totals": {"path": "file://nas/x"}}, "output.totals.path: "),
    ({"output__totals": {"path": "s3://bucket/x"}}, "output.totals.path: "),
    ({"output__totals": {"foreach": f"{HERE}:shwo"}}, f"output.totals.foreach: found '{HERE}:shwo'"),
    ({"output__totals": {"foreach": f"{HERE}:longest"}}, "output.totals.foreach: "),
    (
        {
            "topology__nodes__more": node(
                "per-key",
                function=f"{HERE}:show",
                by={"id": "long"},
                state={"n": "long"},
                output={"id": "long"},
            )
        },
        "topology.nodes.more.options.function: ",
    ),
    (
        {
            "topology__nodes__more": node(
                "per-key",
                function=f"{HERE}:longest",
                by={"id": "long"},
                state={"ID": "long"},
                output={"id": "long"},
            )
        },
        "topology.nodes.more: ",
    ),
    (
        {"topology__nodes__" + "x" * 256: {"sink": "spent"}},
        "found a sink's name of 256 bytes, expected at most 255",
    ),
    ({"output__totals": {"path": "out/" + "x" * 256}}, "; a name in it has 256 bytes, over 255"),
]


@pytest.mark.parametrize(("changes", "says"), BAD, ids=lambda v: str(v)[:60])
def test_a_mistake_is_one_error_with_its_path(changes, says):
    with pytest.raises((InputError, TopologyError)) as caught:
        YamlApplication(settings(**changes))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_of_ones_own_needs_a_topology_to_read_one():
    bare = Settings.from_mapping({"application": {"id": "x", "class": "a:B"}})
    with pytest.raises(ConfigError, match=r"^topology: found nothing, expected sources and nodes$"):
        declared_topology(bare)
