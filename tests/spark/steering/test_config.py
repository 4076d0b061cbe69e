"""Bad keys and values; imports without Spark."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from taskplace.errors import ConfigError
from taskplace.spark.steering.config import SteeringConfig

HOUSE = Path(__file__).parents[3] / "taskplace" / "spark" / "steering"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "max.moves.per.batch",
            0,
            "steering.max.moves.per.batch: found 0, expected an integer of at least 1",
        ),
        ("max.moves.per.batch", True, "found true"),
        ("worth.batches", -1, "steering.worth.batches: found -1"),
        ("worth.batches", 10**400, "steering.worth.batches: found a number of 1329 bits"),
        ("worth.batches", float("nan"), "steering.worth.batches: found nan"),
        ("reload.bytes.per.second", 0, "expected a number above 0"),
        ("load.tolerance", 0, "expected a number above 0"),
        ("load.by", "task.tim", "did you mean 'task.time'?"),
        ("patience.batche", 3, "did you mean 'patience.batches'?"),
    ],
)
def test_a_bad_key_or_value_is_one_clear_error(key, value, message):
    with pytest.raises(ConfigError) as error:
        SteeringConfig.from_properties({key: value})
    assert message in str(error.value)


@pytest.mark.parametrize("name", [path.stem for path in sorted(HOUSE.glob("*.py")) if path.stem != "bridge"])
def test_all_does_without_spark_until_a_query_is_steered(name):
    for node in ast.walk(ast.parse((HOUSE / f"{name}.py").read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not [n for n in names if n.partition(".")[0] in ("pyspark", "py4j")]
