"""What a check of an application in YAML says of schemas, sinks and options, as its start would."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")


from taskplace.cli import main
from taskplace.errors import InputError
from taskplace.spark.yaml_application import YamlApplication
from tests.support.shop import ORDERS, node, settings
from topology import TopologyError

pytestmark = pytest.mark.usefixtures("own_module")

SPENT = "topology__nodes__spent__options"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"input__orders__schema": "id long, customer string"},
            "topology.nodes.spent.options.aggregates.cents: ",
        ),
        (
            {"input__orders__schema": {"idd": "long", "customer": "string", "cents": "long"}},
            "topology.nodes.once.options.by.id: ",
        ),
        (
            {"input__orders__schema": "id long, customer string, cents long, Cents int"},
            "input.orders.schema: ",
        ),
        ({f"{SPENT}__by": {"customer": "int64"}}, "topology.nodes.spent.options.by.customer: "),
        (
            {"topology__sources__orders__options": {"event_time": "att"}},
            "topology.sources.orders.options.event_time: ",
        ),
        (
            {"topology__sources__orders__options": {"event_time": "cents"}},
            "topology.sources.orders.options.event_time: ",
        ),
        (
            {f"{SPENT}__aggregates": {"worst": {"max": "cents", "type": "timestamp"}}},
            "topology.nodes.spent.options.aggregates.worst: ",
        ),
        (
            {
                "topology__sources__orders": {"partitions": 4},
                "topology__nodes": {"totals": {"sink": "orders"}},
                "input__orders__schema": "tags map<string, string>",
            },
            "input.orders.schema: ",
        ),
        (  # behind an aggregate, which says what it sends on
            {
                "topology__nodes__more": {
                    **node("count", by={"customer": "string", "wosrt": "double"}),
                    "process": "spent",
                }
            },
            "topology.nodes.more.options.by.wosrt: ",
        ),
        (
            {"topology__nodes__again": {"repartition": "spent", "key": "costumer"}},
            "topology.nodes.again.key: ",
        ),
        (
            {
                "topology__nodes__again": {"repartition": "once", "key": "tags"},
                "input__orders__schema": "id long, customer string, cents long, tags array<string>",
            },
            "topology.nodes.again.key: ",
        ),
        (
            {
                "topology__nodes__again": {"repartition": "once", "key": "cents"},
                "input__orders__schema": "id long, customer string, cents decimal(9, 2)",
            },
            "topology.nodes.again.key: ",
        ),
        (
            {"topology__nodes__totals__schema": {"customer": "string", "orders": "long", "cent": "long"}},
            "topology.nodes.totals.schema: ",
        ),
        (
            {"topology__nodes__totals__schema": {"customer": "string", "orders": "long", "cents": "long"}},
            "topology.nodes.totals.schema: ",
        ),
        (
            {
                "topology__sources__users": {"key": "customer", "partitions": 4},
                "topology__nodes__joined": {
                    "join_table": ["orders", "users"],
                    "processor": "table-join",
                    "options": {"by": {"customer": "string"}, "columns": {"Cents": "int64"}},
                },
                "input__users": {"format": "json", "path": "u", "schema": "customer string, Cents long"},
            },
            "topology.nodes.joined: ",
        ),
    ],
)
def test_a_declared_schema_is_compared_with_what_the_topology_takes(changes, says):
    with pytest.raises((InputError, TopologyError)) as caught:
        YamlApplication(settings(**changes))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"input__orders__schema": "id long, customer string, cents long, took interval day to second"},
        {"input__orders__schema": "id long, customer string COMMENT 'who, if anybody', cents long"},
        {"input__orders__select": ["id", "who as customer"]},
        {
            "input__orders__schema": "id long, customer varchar(9), cents dec(9, 2) NOT NULL, tags map<string, int>",
            f"{SPENT}__aggregates": {"cents": {"sum": "cents", "type": "decimal(18, 2)"}},
        },
        {
            "spark": {"conf": {"spark.sql.caseSensitive": True}},
            "input__orders__schema": "id long, customer string, cents long, Cents int",
        },
    ],
)
def test_what_is_not_known_of_a_source_is_left_to_the_start(changes):
    YamlApplication(settings(**changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"topology__nodes__more": {"sink": "once"}, "output__more": {"path": "there/../out"}},
            "expected a separate target for each sink: a target stores one output per batch id",
        ),
        (
            {
                "topology__nodes__totals": {"sink": "once", "schema": {"batch_id": "long"}},
                "input__orders__select": ["*", "upper(customer)"],  # so that the columns are not known
            },
            "topology.nodes.totals.schema.batch_id: ",
        ),
        (
            {
                "topology__nodes__totals__options": {"shema": "id long"},
                "topology__nodes__totals__schema": None,
            },
            "topology.nodes.totals.options.shema: ",
        ),
        (
            {"topology__nodes__totals__options": {"event_time": "at"}},
            "topology.nodes.totals.options.event_time: ",
        ),
        (
            {"topology__nodes__again": {"repartition": "once", "key": "id", "options": {"delay": "5 s"}}},
            "topology.nodes.again.options.delay: ",
        ),
    ],
)
def test_what_a_start_refuses_of_sinks_and_options_a_check_refuses(changes, says):
    with pytest.raises((InputError, TopologyError)) as caught:
        YamlApplication(settings(**changes))
    assert says in str(caught.value).replace('"', "'")


def test_a_check_finds_directories_that_do_not_exist(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(ORDERS)
    Path("inn").mkdir()
    assert main(["run", "--check", "orders.yaml"]) == 2
    assert capsys.readouterr().err == (
        f"taskplace: orders.yaml:17: input.orders.path: found '{tmp_path}/in', expected a directory that exists; "
        f"did you mean '{tmp_path}/inn'?\n"
    )
    assert (
        main(["run", "--check", "orders.yaml", "--set", "input.orders.path=in/*"]) == 0
    )  # Spark does not look either
    assert main(["run", "--check", "orders.yaml", "--set", "input.orders.path=s3://bucket/in"]) == 0
    assert main(["run", "--check", "orders.yaml", "--set", "input.orders.path=inn"]) == 0
