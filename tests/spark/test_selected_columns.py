"""What `--check` sees of a source's columns: those of its format, and the names and types that `select` shows."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from taskplace.errors import ConfigError
from taskplace.spark.selected_columns import FIXED, selected
from taskplace.spark.yaml_application import YamlApplication
from tests.support.shop import settings

COLUMNS = [("id", "long"), ("customer", "string"), ("at", "string")]
SELECT = "input__orders__select"
TYPED = ["id", "customer", "cast(cents as long) as cents"]


@pytest.mark.parametrize(
    ("expressions", "made"),
    [
        (["*"], COLUMNS),
        (["ID", "`customer`"], [("ID", "long"), ("customer", "string")]),
        (["id as order"], [("order", "long")]),
        (["CAST(at AS timestamp) AS `the time`"], [("the time", "timestamp")]),
        (["cast(at as decimal(9, 2)) as d"], [("d", "decimal(9, 2)")]),
        (["cast(at as date) + 1 as day", "*"], [("day", "void"), *COLUMNS]),
        (["upper(at)"], None),
        (["1"], None),
        (["NULL"], None),
        (["current_date"], None),
        (["_metadata"], None),
        (["id", "count(*) over ()"], None),
    ],
)
def test_names_and_types_are_read_as_far_as_they_are_shown(expressions, made):
    assert selected("input.a.select", expressions, COLUMNS) == made


def test_without_known_columns_only_names_are_known():
    assert selected("input.a.select", ["id"], []) == [("id", "void")]


def test_a_selected_column_that_is_missing_is_refused():
    with pytest.raises(
        ConfigError, match=r"^input.orders.select\[1\]: found 'custmer'.*did you mean 'customer'"
    ):
        YamlApplication(settings(**{SELECT: ["id", "custmer"]}))


@pytest.mark.parametrize(
    ("select", "says"),
    [
        (
            ["id", "customer"],
            "topology.nodes.spent.options.aggregates.cents.sum: found \"no column 'cents'\"",
        ),
        (
            ["id", "cents"],
            "input.orders.select: found 'id, cents', expected columns that include the key column",
        ),
        (
            ["id", "customer", "cast(cents as array) as cents"],
            None,
        ),
        (TYPED, None),
        (["id", "customer", "cents + 1 as cents"], None),
        (["upper(id)", "customer"], None),
    ],
)
def test_nodes_are_compared_with_what_select_makes(select, says):
    if says is None:
        YamlApplication(settings(**{SELECT: select}))
        return
    with pytest.raises(ConfigError) as caught:
        YamlApplication(settings(**{SELECT: select}))
    assert str(caught.value).startswith(says)


def test_a_format_with_fixed_columns_is_compared_as_well():
    rate = {
        "format": "rate",
        "select": ["value as id", "cast(value as string) as customer", "value as cents"],
    }
    YamlApplication(settings(input__orders=rate))
    with pytest.raises(
        ConfigError, match="found 'valu', expected one of the source's columns timestamp, value"
    ):
        YamlApplication(settings(input__orders={**rate, "select": ["valu as id", "valu"]}))
    assert [name for name, _ in FIXED["kafka"]][:2] == ["key", "value"]
